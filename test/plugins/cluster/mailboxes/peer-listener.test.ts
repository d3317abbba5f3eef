import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { describe, test } from 'node:test';
import type { LocalDelivery } from '../../../../core/contracts/local-delivery.js';
import type { RecipientOutcome } from '../../../../core/pipeline/delivery-target.js';
import { PeerListener } from '../../../../plugins/cluster/mailboxes/peer-listener.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { recipientOf } from '../../../core/pipeline/pipeline-fixture.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { freePort } from '../../../support/free-port.js';
import { Authority } from './owner-site.js';

const authority = new Authority();
const recipients = [{ address: 'ann@example.org', username: 'ann@example.org' }];
const envelope = `${JSON.stringify({ id: 'one', reversePath: null, smtputf8: false, fresh: true, recipients })}\n`;

async function listening(t: Ending, deliver: LocalDelivery['deliver']) {
  const port = await freePort();
  const { log, sentences } = rememberingLog();
  const listener = new PeerListener({
    settings: { host: '127.0.0.1', port },
    tls: { ca: authority.cert, ...authority.pair() },
    http: { answer: () => assert.fail() },
    forwarderOf: () => Promise.resolve(undefined),
    log,
  });
  await listener.start({ local: { deliver }, receive: () => Promise.resolve() });
  atEnd(t, () => listener.close());
  async function open(given: object = authority.pair()): Promise<TLSSocket> {
    const socket = connect({ host: '127.0.0.1', port, servername: 'localhost', ca: authority.cert, ...given });
    atEnd(t, () => void socket.destroy());
    socket.on('error', () => undefined);
    await once(socket, 'secureConnect');
    return socket;
  }
  /** Sends a request whose body is longer than what is sent of it. */
  async function begin(sent: string): Promise<TLSSocket> {
    const socket = await open();
    socket.write(`POST /deliver HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${sent.length + 5}\r\n\r\n${sent}`);
    return socket;
  }
  return { listener, open, begin, sentences };
}

async function textOf(socket: TLSSocket): Promise<string> {
  let text = '';
  for await (const chunk of socket as AsyncIterable<Buffer>) text += chunk.toString();
  return text;
}

describe('the port for other nodes', () => {
  test('waits only a minute for more of a body', async (t) => {
    let begun = (): void => undefined;
    const reading = new Promise<void>((resolve) => (begun = resolve));
    const { begin } = await listening(t, async ({ content }) => {
      begun();
      for await (const chunk of content()) assert.ok(chunk);
      return [];
    });
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const socket = await begin(`${envelope}Sub`);
    const closed = once(socket.resume(), 'close');
    await reading;
    // The read of what is missing has begun.
    for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    t.mock.timers.tick(60_000);
    await closed;
  });

  test('tells nothing about this server', async (t) => {
    const path = '/srv/mail/example.org/ann';
    const { begin, sentences } = await listening(t, () =>
      Promise.reject(new Error(`EACCES: permission denied, mkdir '${path}'`)),
    );
    const socket = await begin(envelope);
    const said = await textOf(socket);
    assert.match(said, /^HTTP\/1\.1 500 [^]*\{"detail":"Local error"\}/);
    assert.doesNotMatch(said, /srv/);
    assert.equal(sentences.length, 1);
  });

  test('answers with an outcome for each recipient, and nothing else of it', async (t) => {
    const recipient = recipientOf('ann@example.org');
    const outcomes: readonly RecipientOutcome[] = [
      { recipient, outcome: 'delivered' },
      { recipient, outcome: 'deferred', code: 452, status: '4.2.2', text: 'Full\r\n of Ü', queue: true },
      { recipient, outcome: 'refused', code: 550, status: '5.1.1', text: 'Nobody' },
    ];
    const { begin } = await listening(t, () => Promise.resolve(outcomes));
    const socket = await begin(envelope);
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    assert.deepEqual(JSON.parse(chunk.toString().split('\r\n\r\n')[1] ?? ''), [
      { outcome: 'delivered' },
      { outcome: 'deferred', code: 452, status: '4.2.2', text: 'Full?? of ?', queue: true },
      { outcome: 'refused', code: 550, status: '5.1.1', text: 'Nobody' },
    ]);
  });

  test('closes though a request does not end', async (t) => {
    let begun = (): void => undefined;
    const delivering = new Promise<void>((resolve) => (begun = resolve));
    const { listener, begin } = await listening(t, () => {
      begun();
      return new Promise(() => undefined);
    });
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const socket = await begin(`${envelope}Sub`);
    const ended = once(socket.resume(), 'close');
    await delivering;
    const closed = listener.close();
    t.mock.timers.tick(5000);
    await Promise.all([closed, ended]);
  });

  test('logs those without a certificate once in a minute', async (t) => {
    const { open, sentences } = await listening(t, () => Promise.resolve([]));
    for (const pair of [{}, {}, new Authority().pair()]) {
      const socket = await open(pair);
      await new Promise((resolve) => socket.resume().on('close', resolve));
    }
    assert.equal(sentences.filter((one) => one.includes('without a certificate')).length, 1);
  });
});
