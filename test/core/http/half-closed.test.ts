import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { turns } from '../../../core/turns.js';
import { openShell } from './opened-shell.js';
import { statusOf } from './raw-exchange.js';

test('clients that end their side with the request are answered, also while others connect', async (t) => {
  const opened = await openShell();
  t.after(() => opened.close());
  let isOver = false;
  const others = (): void => {
    turns.accepted();
    if (!isOver) setImmediate(others);
  };
  others();
  const ask = async (): Promise<number> => {
    const socket = connect(opened.port, '127.0.0.1');
    let received = '';
    socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
    socket.end(`GET /open HTTP/1.1\r\nHost: 127.0.0.1:${opened.port}\r\n\r\n`);
    await once(socket, 'close');
    return statusOf(received);
  };
  const answers = await Promise.all(Array.from({ length: 20 }, ask));
  isOver = true;
  assert.deepEqual(
    answers,
    Array.from({ length: 20 }, () => 200),
  );
});
