import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import fc from 'fast-check';
import { standardDeadlines } from '../../../../core/smtp/client/remote-server.js';
import { isClientFailure } from '../../../../core/smtp/client/failure.js';
import { openSession } from '../../../../core/smtp/client/opening.js';
import { ReplyReader } from '../../../../core/smtp/client/channel.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { destinationOf, message } from './fixture.js';

const fragments = [
  '220 hi\r\n',
  '250 ok\r\n',
  '250-x\r\n',
  '354 go\r\n',
  '421 bye\r\n',
  '550 5.1.1 no\r\n',
  '999 x\r\n',
  '250-PIPELINING\r\n',
  '250 STARTTLS\r\n',
  '550-a\r\n550 b\r\n',
  '25\r\n',
  'garbage',
  '250',
  '250-',
  '25',
  '2',
  '\r\n',
  '\n',
  '\r',
  ' ',
  '\0',
  'é',
];
const fragment = fc.constantFrom(...fragments);

/** Says the pieces one after the other: the next one whenever something comes, or at once. */
async function talker(t: Ending, pieces: readonly (readonly string[])[]): Promise<number> {
  const server = createServer({ noDelay: true }, (socket) => {
    const left = [...pieces];
    const speak = (): void => {
      const next = left.shift();
      if (next === undefined) socket.end();
      else for (const piece of next) socket.write(piece);
    };
    socket.on('error', () => undefined).on('data', speak);
    speak();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(t, () => void server.close());
  return (server.address() as AddressInfo).port;
}

test('whatever a peer says, there is a typed outcome for each recipient, and nothing hangs', async (t) => {
  const dialogue = fc.array(fc.array(fragment, { maxLength: 6 }), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(dialogue, fc.boolean(), async (pieces, friendly) => {
      const opening = friendly ? [['220 hi\r\n'], ['250-x\r\n250 PIPELINING\r\n']] : [];
      const port = await talker(t, [...opening, ...pieces]);
      const deadlines = Object.fromEntries(Object.keys(standardDeadlines).map((step) => [step, 40]));
      const session = await openSession(destinationOf({ port }), { deadlines }).catch((error: unknown) => error);
      if (session instanceof Error) return assert.ok(isClientFailure(session), String(session));
      const opened = session as Awaited<ReturnType<typeof openSession>>;
      const result = await opened.send(message({ to: ['a@example.com', 'b@example.com'] }));
      assert.equal(result.recipients.length, 2);
      for (const one of result.recipients) {
        assert.ok(one.outcome === 'delivered' || isClientFailure(one.failure));
        // Only what was really said may bounce mail.
        if (one.outcome === 'failed' && one.failure.permanent) assert.ok((one.failure.reply?.code ?? 0) >= 500);
        if (one.outcome === 'delivered') assert.ok(one.reply.code >= 200 && one.reply.code < 300);
      }
      opened.close();
      return undefined;
    }),
    { numRuns: 100, seed: 20_261_121 },
  );
});

test('replies do not depend on how they were cut', () => {
  fc.assert(
    fc.property(
      fc.array(fragment, { maxLength: 30 }),
      fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1 }),
      (pieces, sizes) => {
        const bytes = Buffer.from(pieces.join(''));
        const whole = new ReplyReader().read(bytes);
        const reader = new ReplyReader();
        const found: unknown[] = [];
        for (let at = 0; at < bytes.length && !found.some(isMalformed);) {
          const size = sizes[at % sizes.length] ?? 1;
          found.push(...reader.read(bytes.subarray(at, at + size)));
          at += size;
        }
        assert.deepEqual(found, whole);
      },
    ),
    { numRuns: 500 },
  );
});

test('text of a reply is printable, and a status of another class stays text', () => {
  const [first, second, third] = new ReplyReader().read(
    Buffer.from('550-5.1.1 Nobody\u001b[31m\r\n550-Straße \u202e\r\n550 5.1.1\r\n550 4.2.1 Later\r\n250\r\n'),
  );
  assert.deepEqual(first, { code: 550, status: '5.1.1', lines: ['Nobody?[31m', 'Straße ?', ''] });
  assert.deepEqual(second, { code: 550, status: null, lines: ['4.2.1 Later'] });
  assert.deepEqual(third, { code: 250, status: null, lines: [''] });
});

const isMalformed = (one: unknown): boolean => typeof one === 'object' && one !== null && 'malformed' in one;

test('of a reply of very many bytes the first are kept: there may be a thousand of them for one message', () => {
  const reader = new ReplyReader();
  const line = Buffer.from(`550-${'x'.repeat(4000)}\r\n`);
  const read = [
    ...Array.from({ length: 50 }, () => reader.read(line)).flat(),
    ...reader.read(Buffer.from('550 end\r\n')),
  ];
  const [only, ...others] = read as { code: number; lines: readonly string[] }[];
  assert.deepEqual([only?.code, only?.lines.length, others.length], [550, 4, 0]);
  const endless = Array.from({ length: 300 }, () => reader.read(line)).flat();
  assert.deepEqual(endless[0], { malformed: 'a reply of more than 262144 bytes' });
});
