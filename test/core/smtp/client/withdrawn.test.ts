import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import type { Permission } from '../../../../core/concurrency.js';
import { openSession } from '../../../../core/smtp/client/opening.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { selfSigned } from '../../../support/certificate.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { destinationOf, message, open, outcomes, text } from './fixture.js';

interface RawServer {
  readonly port: number;
  /** Everything that came after DATA. */
  readonly content: () => Buffer;
  /** The client has closed the connection. */
  readonly closed: Promise<void>;
  readonly socket: () => Socket;
}

/** A server that looks at nothing but the bytes. */
async function rawServer(t: Ending, capabilities: readonly string[], stopsAt = Infinity): Promise<RawServer> {
  const chunks: Buffer[] = [];
  let length = 0;
  let socket: Socket | undefined;
  let end = (): void => undefined;
  const closed = new Promise<void>((resolve) => (end = resolve));
  const server = createServer((peer) => {
    socket = peer;
    let isContent = false;
    peer.write('220 raw\r\n');
    peer.on('error', () => undefined).on('close', end);
    peer.on('data', (bytes: Buffer) => {
      if (isContent) {
        chunks.push(bytes);
        length += bytes.length;
        if (length >= stopsAt) peer.pause();
        if (bytes.subarray(-3).toString() === '.\r\n')
          peer.write('250 2.0.0 Taken\r\n'.repeat(capabilities.includes('LHLO') ? 2 : 1));
        return;
      }
      for (const line of bytes.toString().split('\r\n').slice(0, -1)) {
        if (/^(?:EHLO|LHLO)/.test(line))
          peer.write(['250-raw', ...capabilities.map((one) => `250-${one}`), '250 HELP', ''].join('\r\n'));
        else if (line === 'DATA') peer.write('354 Go\r\n');
        else peer.write('250 2.1.0 Ok\r\n');
        isContent ||= line === 'DATA';
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(t, () => {
    socket?.destroy();
    server.close();
  });
  return {
    port: (server.address() as AddressInfo).port,
    content: () => Buffer.concat(chunks),
    closed,
    socket: () => socket ?? assert.fail('nobody has come'),
  };
}

const large = Buffer.from(`Subject: Large\r\n\r\n${`${'x'.repeat(76)}\r\n`.repeat(270_000)}`);
const never = (): Promise<boolean> => new Promise(() => undefined);

/** By turns; the first is asked at DATA. */
function answers(...given: readonly (Permission | boolean)[]): {
  readonly mayEnd: Permission;
  readonly asked: () => number;
} {
  let asked = 0;
  const mayEnd = (): boolean | Promise<boolean> => {
    const one = given[Math.min(asked, given.length - 1)] ?? true;
    asked += 1;
    return typeof one === 'function' ? one() : one;
  };
  return { mayEnd, asked: () => asked };
}

const refusals: readonly (readonly [string, readonly (Permission | boolean)[]])[] = [
  ['no', [true, false]],
  ['no, after a while', [true, () => Promise.resolve(false)]],
  ['yes after a while, then no', [true, () => Promise.resolve(true), false]],
  ['yes after a while, then no after another while', [true, () => Promise.resolve(true), () => Promise.resolve(false)]],
  ['a rejection', [true, () => Promise.reject(new Error('the database is away'))]],
  [
    'an error',
    [
      true,
      () => {
        throw new Error('a fault');
      },
    ],
  ],
  ['nothing', [never]],
];

for (const protocol of ['smtp', 'lmtp'] as const) {
  for (const pipelining of [true, false]) {
    const capabilities = ['8BITMIME', ...(pipelining ? ['PIPELINING'] : []), ...(protocol === 'lmtp' ? ['LHLO'] : [])];
    const sources = pipelining ? [Buffer.from(text), large] : [Buffer.from(text)];
    const named = `${protocol}${pipelining ? '' : ', step by step'}`;

    for (const [what, given] of refusals) {
      for (const source of sources) {
        test(`${named}: a message of ${source.length} bytes has no end when the answer is ${what}`, async (t) => {
          const server = await rawServer(t, capabilities);
          const options = { deadlines: { mayEndMs: 50 } };
          const session = await openSession(destinationOf(server, { protocol }), options);
          const { mayEnd, asked } = answers(...given);
          const result = await session.send(message({ to: ['a@example.com', 'b@example.com'], content: { source } }), {
            mayEnd,
          });
          assert.deepEqual(outcomes(result), [
            'withdrawn body 451 4.3.0 temporary',
            'withdrawn body 451 4.3.0 temporary',
          ]);
          assert.equal(result.failure?.kind, 'withdrawn');
          assert.ok(asked() >= 2);
          assert.equal(session.reusable, false);
          await server.closed;
          assert.deepEqual(server.content(), source === large ? large : Buffer.alloc(0));
        });
      }
    }

    for (const given of [
      [true],
      [() => Promise.resolve(true)],
      [never, true],
      [() => Promise.reject(new Error('away')), true],
    ]) {
      test(`${named}: messages end when the last answer is yes (${given.join()})`, async (t) => {
        for (const source of sources) {
          const server = await rawServer(t, capabilities);
          const session = await openSession(destinationOf(server, { protocol }));
          const { mayEnd } = answers(...given);
          const result = await session.send(message({ to: ['a@example.com', 'b@example.com'], content: { source } }), {
            mayEnd,
          });
          assert.deepEqual(outcomes(result), ['delivered', 'delivered']);
          assert.deepEqual(server.content(), Buffer.concat([source, Buffer.from('.\r\n')]));
          session.close();
        }
      });
    }
  }
}

test('it is asked about the end when nothing of the text waits in this process any more', async (t) => {
  const server = await rawServer(t, ['PIPELINING', '8BITMIME'], 1);
  const session = await openSession(destinationOf(server));
  atEnd(t, () => session.close());
  const { mayEnd, asked } = answers(true, false);
  const chunk = Buffer.from(`${'y'.repeat(70)}\r\n`.repeat(900));
  let given = 0;
  async function* source() {
    for (; given < 600; given += 1) yield await Promise.resolve(chunk);
  }
  const sent = session.send(message({ content: { source } }), { mayEnd });
  // The window of a server that does not read fills up.
  const seen: number[] = [];
  while (seen.at(-1) === undefined || seen.at(-1) === 0 || seen.at(-1) !== seen.at(-2)) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    seen.push(given);
  }
  assert.ok(given < 600, 'the system takes less than the whole');
  assert.equal(asked(), 1, 'only at DATA');
  server.socket().removeAllListeners('data').resume();
  assert.equal((await sent).failure?.kind, 'withdrawn');
  assert.equal(asked(), 2);
});

test('over TLS and from a stream, a message that may end ends, and the connection is used again', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities: ['PIPELINING', '8BITMIME'], tls: selfSigned('localhost') });
  const session = await open(t, sink, { tls: { mode: 'require', verify: false } });
  const some = large.subarray(0, large.indexOf('\n', 500_000) + 1);
  for (let n = 0; n < 3; n += 1) {
    async function* source() {
      for (let at = 0; at < some.length; at += 70_003) yield await Promise.resolve(some.subarray(at, at + 70_003));
    }
    const { mayEnd } = answers(() => Promise.resolve(true));
    assert.deepEqual(outcomes(await session.send(message({ content: { source } }), { mayEnd })), ['delivered']);
    assert.deepEqual(sink.messages[n]?.text, some);
  }
  assert.equal(sink.connections, 1);
});
