import { once } from 'node:events';
import { connect } from 'node:net';
import { abortAfter } from 'postern/plugin';
import { bounded, plain } from './answers.js';

/** @typedef {import('./answers.js').Finding} Finding */

/** INSTREAM of clamd: pieces behind their lengths, and an empty one at the end. */
export async function askClamav(/** @type {any} */ message, /** @type {any} */ { clamav, seconds }) {
  const socket = connect(typeof clamav === 'string' ? { path: clamav } : clamav);
  const signal = abortAfter(seconds * 1000);
  signal.addEventListener('abort', () => socket.destroy(new Error('clamd takes too long')));
  const answered = bounded(socket);
  answered.catch(() => undefined);
  try {
    await once(socket, 'connect');
    socket.write('zINSTREAM\0');
    for await (const piece of message.open()) {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(piece.length);
      if (!socket.write(Buffer.concat([length, piece]))) await Promise.race([once(socket, 'drain'), answered]);
    }
    socket.write(Buffer.alloc(4));
    const words = (await answered).replaceAll('\0', '').trim();
    const virus = /^stream: (.+) FOUND$/.exec(words)?.[1];
    if (virus) return /** @type {Finding} */ ({ what: 'refuse', why: `Found ${plain(virus)}` });
    if (words !== 'stream: OK') throw new Error(`clamd says ${plain(words)}`);
    return /** @type {Finding} */ ({ what: 'fine', why: '' });
  } finally {
    socket.destroy();
  }
}
