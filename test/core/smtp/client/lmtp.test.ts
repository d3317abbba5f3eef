import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { ClientDeadlines } from '../../../../core/smtp/client/remote-server.js';
import { type Rule, type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import type { Ending } from '../../../support/ending.js';
import { message, open, outcomes } from './fixture.js';

const to = ['a@example.com', 'b@example.com', 'c@example.com'];

async function sent(
  t: Ending,
  steps: SinkScript['steps'] & object,
  recipients: readonly string[] = to,
  deadlines: Partial<ClientDeadlines> = {},
) {
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps });
  const session = await open(t, sink, { protocol: 'lmtp' }, { deadlines });
  const settled: number[] = [];
  const result = await session.send(message({ to: recipients }), { settled: (index) => settled.push(index) });
  return { sink, session, result, settled };
}

test('each recipient has its own reply, and the connection stays good', async (t) => {
  const { result, session, sink, settled } = await sent(t, {
    dot: ['250 2.1.5 Delivered', '452 4.2.2 Full', '550 5.2.1 Gone'],
  });
  assert.deepEqual(outcomes(result), [
    'delivered',
    'reply final 452 4.2.2 temporary',
    'reply final 550 5.2.1 permanent',
  ]);
  assert.deepEqual(settled, [0, 1, 2]);
  assert.equal(result.failure, undefined);
  assert.equal(session.reusable, true);
  assert.equal(sink.commands[0], 'LHLO client.example');
});

test('replies belong to the accepted recipients alone, in their order', async (t) => {
  const { result } = await sent(t, {
    rcpt: [undefined, '550 5.1.1 Nobody', undefined],
    dot: ['250 2.0.0 a', '450 4.2.0 c'],
  });
  assert.deepEqual(outcomes(result), [
    'delivered',
    'reply rcpt 550 5.1.1 permanent',
    'reply final 450 4.2.0 temporary',
  ]);
});

test('a recipient that is named twice gets two replies', async (t) => {
  const { result, sink } = await sent(t, { dot: ['250 2.0.0 once', '452 4.2.2 twice'] }, [
    'a@example.com',
    'a@example.com',
  ]);
  assert.deepEqual(outcomes(result), ['delivered', 'reply final 452 4.2.2 temporary']);
  assert.equal(sink.messages[0]?.recipients.length, 2);
});

test('all refused is no success', async (t) => {
  const { result } = await sent(t, { dot: '550 5.2.1 Gone' });
  assert.deepEqual(new Set(outcomes(result)), new Set(['reply final 550 5.2.1 permanent']));
});

test('when the connection ends in the middle, those with a reply are settled and the others may have it', async (t) => {
  for (const end of [{ reset: true }, { close: '' }] as const) {
    // A reset takes what is on its way with it, so the first reply must have been read.
    let read = (): void => undefined;
    const after = new Promise<void>((resolve) => (read = resolve));
    const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: ['250 2.0.0 a', { after, say: end }] } });
    const session = await open(t, sink, { protocol: 'lmtp' });
    const result = await session.send(message({ to }), { settled: () => read() });
    const unknown = 'closed final 451 4.4.2 temporary after the dot';
    assert.deepEqual(outcomes(result), ['delivered', unknown, unknown]);
    assert.equal(session.reusable, false);
  }
});

test('one reply for two recipients runs into the deadline', async (t) => {
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: ['250 2.0.0 both', { silent: true }] } });
  const session = await open(t, sink, { protocol: 'lmtp' }, { deadlines: { finalMs: 500 } });
  const result = await session.send(message({ to: to.slice(0, 2) }));
  assert.deepEqual(outcomes(result), ['delivered', 'timeout final 451 4.4.2 temporary after the dot']);
  assert.equal(session.reusable, false);
});

test('one reply too many makes all of them doubtful', async (t) => {
  const { result, session } = await sent(t, {
    dot: [{ raw: '250 a\r\n250 b\r\n250 c\r\n250 d\r\n' }, { silent: true }],
  });
  const doubtful = 'protocol final 451 4.5.0 temporary after the dot';
  assert.deepEqual(outcomes(result), [doubtful, doubtful, doubtful]);
  assert.equal(session.reusable, false);
});

test('a server that does not know LHLO is given up', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { lhlo: '500 5.5.1 What?' } });
  await assert.rejects(open(t, sink, { protocol: 'lmtp' }), { kind: 'reply', step: 'hello', code: 500 });
});

test('step by step, the replies come one by one', async (t) => {
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: ['250 2.0.0 a', '452 4.2.2 b'] } });
  const session = await open(t, sink, { protocol: 'lmtp' });
  await session.mail({ address: 'anna@example.org' });
  for (const address of to.slice(0, 2)) assert.equal((await session.rcpt({ address })).code, 250);
  assert.equal((await session.data()).code, 354);
  const came: number[] = [];
  const replies = await session.body({ source: Buffer.from('x\r\n') }, ({ code }, index) => came.push(code, index));
  assert.deepEqual(came, [250, 0, 452, 1]);
  assert.deepEqual(
    replies.map(({ status }) => status),
    ['2.0.0', '4.2.2'],
  );
  assert.equal(session.reusable, true);
});

/** Says goodbye in place of the second reply, and the third behind it. */
const goodbye = [{ raw: '250 2.0.0 a\r\n421 4.3.2 Bye\r\n550 5.2.1 c\r\n250 2.0.0 d\r\n' }, { close: '' }] as const;
const five = [...to, 'd@example.com', 'e@example.com'];
const answeredFour = [
  'delivered',
  'reply final 421 4.3.2 temporary',
  'reply final 550 5.2.1 permanent',
  'delivered',
  'reply final 421 4.3.2 temporary',
];

test('a 421 is for its own recipient and those without a reply: replies after it count', async (t) => {
  const { result, session, settled } = await sent(t, { dot: goodbye }, five);
  assert.deepEqual(outcomes(result), answeredFour);
  assert.deepEqual(settled, [0, 1, 2, 3, 4]);
  assert.equal(result.failure?.code, 421);
  assert.equal(session.reusable, false);
});

test('replies after an unsolicited 421 count too', async (t) => {
  const dot = ['250 2.0.0 a', '421 4.3.2 Bye', '550 5.2.1 c', '250 2.0.0 d', { close: '' }] as const;
  const inTurn: Rule = ({ nth }) => ({ after: pause(20), say: dot[Math.min(nth, 4)] ?? '' });
  const { result, session, settled } = await sent(t, { dot: inTurn }, five);
  assert.deepEqual(outcomes(result), answeredFour);
  assert.deepEqual(settled, [0, 1, 2, 3, 4]);
  assert.equal(session.reusable, false);
});

test('a server that hangs after its 421 has said it to all recipients without a reply', async (t) => {
  const dot = ['250 2.0.0 a', '421 4.3.2 Bye', { silent: true }] as const;
  const { result, session } = await sent(t, { dot }, to, { finalMs: 100 });
  assert.deepEqual(outcomes(result), [
    'delivered',
    'reply final 421 4.3.2 temporary',
    'reply final 421 4.3.2 temporary',
  ]);
  assert.equal(session.reusable, false);
});

test('the same step by step', async (t) => {
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: goodbye } });
  const session = await open(t, sink, { protocol: 'lmtp' });
  await session.mail({ address: 'anna@example.org' });
  for (const address of five) await session.rcpt({ address });
  await session.data();
  const came: (readonly [number, number])[] = [];
  const body = session.body({ source: Buffer.from('x\r\n') }, ({ code }, index) => came.push([index, code]));
  await assert.rejects(body, { kind: 'reply', step: 'final', code: 421 });
  assert.deepEqual(came, [
    [0, 250],
    [2, 550],
    [3, 250],
  ]);
  assert.equal(session.reusable, false);
});
