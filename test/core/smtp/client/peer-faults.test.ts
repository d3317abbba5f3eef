import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { ClientDeadlines } from '../../../../core/smtp/client/remote-server.js';
import { openSession } from '../../../../core/smtp/client/opening.js';
import { type Behaviour, type SinkScript, type SinkStep, SmtpSink } from '../../../support/smtp-sink.js';
import type { Ending } from '../../../support/ending.js';
import { described, destinationOf, failureOf, message, open, outcomes } from './fixture.js';

const plain = ['8BITMIME'];
/** Opens a session with a server of that script and sends one message to two recipients; what the first one got. */
async function attempt(t: Ending, script: SinkScript, deadlines: Partial<ClientDeadlines> = {}): Promise<string> {
  const sink = await SmtpSink.start(t, script);
  const { protocol = 'smtp' } = script;
  try {
    const session = await open(t, sink, { protocol }, { deadlines });
    const result = await session.send(message({ to: ['a@example.com', 'b@example.com'] }));
    assert.equal(session.reusable, false);
    return outcomes(result).join(', ');
  } catch (failure) {
    return described(await failureOf(Promise.reject(failure instanceof Error ? failure : new Error('thrown'))));
  }
}

/** Where a peer can fail, how the step is called, its deadline, and whether a message was being sent; in the order of a session. */
const places: readonly (readonly [SinkStep, string, keyof ClientDeadlines, boolean])[] = [
  ['greeting', 'greeting', 'greetingMs', false],
  ['ehlo', 'hello', 'helloMs', false],
  ['mail', 'mail', 'mailMs', true],
  ['rcpt', 'rcpt', 'rcptMs', true],
  ['data', 'data', 'dataMs', true],
  ['dot', 'final', 'finalMs', true],
];

function atEachStep(behaviour: Behaviour, check: (step: string, got: string, each: (one: string) => string) => void) {
  // Short where it is waited for, long where it must not be.
  const ms = typeof behaviour === 'object' && ('stall' in behaviour || 'drip' in behaviour) ? 150 : 60_000;
  return async (t: Ending): Promise<void> => {
    for (const capabilities of [plain, [...plain, 'PIPELINING']]) {
      for (const [sinkStep, step, deadline, sent] of places) {
        const got = await attempt(t, { capabilities, steps: { [sinkStep]: behaviour } }, { [deadline]: ms });
        check(step, got, (one) => (sent ? `${one}, ${one}` : one));
      }
    }
  };
}

const behindDot = (step: string): string => (step === 'final' ? ' after the dot' : '');

test('a peer that stalls is given up at the deadline of the step', { timeout: 30_000 }, async (t) => {
  await atEachStep({ stall: true }, (step, got, each) =>
    assert.equal(got, each(`timeout ${step} 451 4.4.2 temporary${behindDot(step)}`)),
  )(t);
});

test('a peer that drips an endless reply is given up at the same deadline', { timeout: 30_000 }, async (t) => {
  await atEachStep({ drip: '250-x\r\n', everyMs: 5 }, (step, got, each) => {
    const deadline = each(`timeout ${step} 451 4.4.2 temporary${behindDot(step)}`);
    assert.equal(got, deadline);
  })(t);
});

test('a connection that is reset is a temporary failure', { timeout: 30_000 }, async (t) => {
  await atEachStep({ reset: true }, (step, got, each) => {
    // Who is reset at once may not have known that he was connected.
    if (step === 'greeting')
      assert.match(got, /^(?:closed greeting 451 4\.4\.2|connect connect 451 4\.4\.1) temporary$/);
    else assert.equal(got, each(`closed ${step} 451 4.4.2 temporary${behindDot(step)}`));
  })(t);
});

test('a stream that ends is a temporary failure', { timeout: 30_000 }, async (t) => {
  await atEachStep({ close: '' }, (step, got, each) =>
    assert.equal(got, each(`closed ${step} 451 4.4.2 temporary${behindDot(step)}`)),
  )(t);
});

test('a 421 is a reply at any time, and the end of the connection', { timeout: 30_000 }, async (t) => {
  await atEachStep({ close: '421 4.3.2 Going down' }, (step, got, each) =>
    assert.equal(got, each(`reply ${step} 421 4.3.2 temporary`)),
  )(t);
});

for (const garbage of [
  'hello there',
  '999 9.9.9 What',
  '25',
  '2500 ok',
  '250ok',
  '\u0000\u0001\u0002',
  '',
  '<html>',
  '150 odd',
  '650 odder',
]) {
  test(`${JSON.stringify(garbage)} is no reply, and nobody bounces for it`, { timeout: 30_000 }, async (t) => {
    await atEachStep({ raw: `${garbage}\r\n` }, (step, got, each) =>
      assert.equal(got, each(`protocol ${step} 451 4.5.0 temporary${behindDot(step)}`)),
    )(t);
  });
}

test('lines of one reply with different codes are no reply', { timeout: 30_000 }, async (t) => {
  await atEachStep({ raw: '250-fine\r\n550 no\r\n' }, (step, got, each) =>
    assert.equal(got, each(`protocol ${step} 451 4.5.0 temporary${behindDot(step)}`)),
  )(t);
});

test('a reply without end is given up at its bound, not at the deadline', { timeout: 30_000 }, async (t) => {
  for (const endless of ['250-x\r\n'.repeat(200_000), `250 ${'x'.repeat(1_100_000)}`]) {
    for (const step of ['mail', 'dot'] as const) {
      const got = await attempt(t, { steps: { [step]: { raw: endless } } });
      assert.match(got, new RegExp(`^protocol ${step === 'dot' ? 'final' : 'mail'} 451 4\\.5\\.0 temporary`));
    }
  }
});

test('F-R12 a permanent refusal with a long text is permanent', async (t) => {
  const lines = Array.from({ length: 15 }, () => `550-5.7.1 ${'x'.repeat(4000)}\r\n`).join('');
  for (const long of [
    `550 5.7.1 ${'x'.repeat(60_000)}\r\n`,
    `${lines}550 5.7.1 No\r\n`,
    '550-No\r\n'.repeat(1000) + '550 No\r\n',
  ]) {
    const got = await attempt(t, { steps: { rcpt: { raw: long } } });
    assert.match(got, /^reply rcpt 550 .*permanent/);
  }
});

test('3yz where nothing is to follow, and 2yz to DATA, are out of turn', async (t) => {
  const cases: readonly (readonly [SinkScript['steps'] & object, string])[] = [
    [{ greeting: '354 Go' }, 'protocol greeting 451 4.5.0 temporary'],
    [{ mail: '354 Go' }, 'protocol mail 451 4.5.0 temporary'],
    [{ rcpt: '354 Go' }, 'protocol rcpt 451 4.5.0 temporary'],
    [{ data: '250 Have it' }, 'protocol data 451 4.5.0 temporary'],
    [{ data: '334 Go' }, 'protocol data 451 4.5.0 temporary'],
    [{ dot: '354 Go' }, 'protocol final 451 4.5.0 temporary after the dot'],
  ];
  for (const [steps, expected] of cases) {
    const got = await attempt(t, { capabilities: plain, steps });
    assert.equal(got.split(', ')[0], expected);
  }
});

test('replies to what was never said are not taken for replies', async (t) => {
  const four = '250 a\r\n250 b\r\n250 c\r\n354 d\r\n250 queued before anything\r\n';
  const cases: readonly (readonly [SinkScript['steps'] & object, string])[] = [
    [{ greeting: { raw: `220 hi\r\n${four}` } }, 'protocol greeting 451 4.5.0 temporary'],
    [{ greeting: { raw: '220 hi\r\n25' } }, 'protocol greeting 451 4.5.0 temporary'],
    [{ ehlo: { raw: '250-sink.example\r\n250 8BITMIME\r\n250 fine\r\n' } }, 'protocol hello 451 4.5.0 temporary'],
    [{ mail: { raw: '250 fine\r\n250 fine\r\n' } }, 'protocol mail 451 4.5.0 temporary'],
    [{ rcpt: { raw: '250 fine\r\n250 fine\r\n' } }, 'protocol rcpt 451 4.5.0 temporary'],
    [{ data: { raw: '354 go\r\n250 queued\r\n' } }, 'protocol data 451 4.5.0 temporary'],
    [{ dot: { raw: '250 queued\r\n250 and more\r\n' } }, 'protocol final 451 4.5.0 temporary after the dot'],
  ];
  for (const [steps, expected] of cases) {
    const got = await attempt(t, { capabilities: plain, steps });
    assert.equal(got.split(', ')[0], expected, JSON.stringify(steps));
  }
});

test('a recipient who had a reply of his own before the goodbye keeps it', async (t) => {
  const rcpt = [undefined, '550 5.1.1 Nobody'] as const;
  const goodbye = (): Behaviour => ({ after: pause(20), say: { close: '421 4.3.2 Going down' } });
  for (const capabilities of [plain, [...plain, 'PIPELINING']]) {
    const got = await attempt(t, { capabilities, steps: { rcpt, data: goodbye } });
    assert.equal(got, 'reply data 421 4.3.2 temporary, reply rcpt 550 5.1.1 permanent');
  }
});

test('half a goodbye after a reply does not change that reply', async (t) => {
  for (const half of ['4', '421', '421 4.3.2 By', '421-4.3.2 Bye\r\n421']) {
    const sink = await SmtpSink.start(t, { steps: { dot: { raw: `250 2.0.0 Taken\r\n${half}` } } });
    const session = await open(t, sink);
    assert.deepEqual(outcomes(await session.send(message())), ['delivered'], half);
    assert.deepEqual(outcomes(await session.send(message())), ['closed mail 451 4.4.2 temporary'], half);
    assert.equal(session.reusable, false);
  }
});

test('half a line after a reply makes that reply doubtful', async (t) => {
  for (const half of ['2', '250', '45', '422-', '550-5.1.1 No\r\n']) {
    const sink = await SmtpSink.start(t, { steps: { dot: { raw: `250 2.0.0 Taken\r\n${half}` } } });
    const session = await open(t, sink);
    const expected = ['protocol final 451 4.5.0 temporary after the dot'];
    assert.deepEqual(outcomes(await session.send(message())), expected, half);
  }
});

test('a reply while the message is still being sent breaks the connection', async (t) => {
  const cases = [
    [{ raw: '250 queued before the dot\r\n' }, 'protocol body 451 4.5.0 temporary'],
    [{ raw: '552 5.3.4 Too big\r\n' }, 'reply body 552 5.3.4 permanent'],
    [{ raw: '451 4.3.0 Disk full\r\n' }, 'reply body 451 4.3.0 temporary'],
    [{ close: '421 4.3.2 Going down' }, 'reply body 421 4.3.2 temporary'],
    [{ reset: true }, 'closed body 451 4.4.2 temporary'],
  ] as const;
  for (const [body, expected] of cases) {
    const sink = await SmtpSink.start(t, { steps: { body } });
    const session = await open(t, sink);
    // A source that never ends: nothing but what the peer says can end this.
    async function* endless() {
      for (;;) {
        yield Buffer.from('line\r\n');
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    }
    assert.deepEqual(outcomes(await session.send(message({ content: { source: endless } }))), [expected]);
    assert.equal(session.reusable, false);
    assert.equal(sink.messages.length, 0);
  }
});

test('a source that is stuck does not hold a connection that has failed', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { body: { reset: true } } });
  const session = await open(t, sink);
  const stuck = () => {
    const stream = new Readable({ read: () => undefined });
    stream.push('one line, and no other\r\n');
    return stream;
  };
  assert.deepEqual(outcomes(await session.send(message({ content: { source: stuck } }))), [
    'closed body 451 4.4.2 temporary',
  ]);
});

test('a peer that does not take the message is given up', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { body: { stall: true } } });
  const session = await open(t, sink, {}, { deadlines: { blockMs: 200 } });
  const large = Buffer.alloc(50_000_000, 'x');
  assert.deepEqual(outcomes(await session.send(message({ content: { source: large, eightBit: false } }))), [
    'timeout body 451 4.4.2 temporary',
  ]);
});

test('an attempt has one deadline over all its steps', async (t) => {
  const slow = (reply: string) => ({ after: new Promise((resolve) => setTimeout(resolve, 80)), say: reply });
  const steps = {
    mail: () => slow('250 fine'),
    rcpt: () => slow('250 fine'),
    data: () => slow('354 go'),
    dot: () => slow('250 ok'),
  };
  const sink = await SmtpSink.start(t, { capabilities: plain, steps });
  const session = await open(t, sink, {}, { deadlines: { attemptMs: 200 } });
  const [got] = outcomes(await session.send(message({ to: ['a@example.com', 'b@example.com', 'c@example.com'] })));
  assert.match(got ?? '', /^timeout (?:mail|rcpt|data) 451 4\.4\.2 temporary$/);
});

test('a source that fails ends the connection without a dot', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  async function* failing() {
    yield Buffer.from('half a message\r\n');
    await Promise.resolve();
    throw new Error('EIO, read /secret/path');
  }
  const result = await session.send(message({ content: { source: failing } }));
  assert.deepEqual(outcomes(result), ['local body 451 4.3.0 temporary']);
  assert.ok(!result.failure?.text.includes('secret'));
  await sink.until(({ open: left }) => left === 0);
  assert.equal(sink.messages.length, 0);
});

test('an attempt can be stopped at any step', async (t) => {
  for (const [sinkStep, step] of places) {
    const sink = await SmtpSink.start(t, { capabilities: plain, steps: { [sinkStep]: { stall: true } } });
    const abort = new AbortController();
    const attempting = (async () => {
      const session = await open(t, sink, {}, { signal: abort.signal });
      return outcomes(await session.send(message(), { signal: abort.signal }))[0];
    })().catch((failure: unknown) => failureOf(Promise.reject(failure as Error)).then(described));
    const heard = { greeting: 0, ehlo: 1, mail: 2, rcpt: 3, data: 4, dot: 4 }[sinkStep as 'mail'];
    await sink.until(({ connections, commands, messages }) =>
      sinkStep === 'dot' ? messages.length > 0 : connections > 0 && commands.length >= heard,
    );
    abort.abort();
    const got = await attempting;
    // The server may know of the connection before we do.
    if (step === 'greeting') assert.match(String(got), /^local (?:greeting|connect) 451 4\.3\.0 temporary$/);
    else assert.equal(got, `local ${step} 451 4.3.0 temporary${behindDot(step)}`);
  }
  const abort = AbortSignal.abort();
  const sink = await SmtpSink.start(t);
  assert.equal(described(await failureOf(open(t, sink, {}, { signal: abort }))), 'local connect 451 4.3.0 temporary');
  const session = await open(t, sink);
  assert.deepEqual(outcomes(await session.send(message(), { signal: abort })), ['local mail 451 4.3.0 temporary']);
  assert.equal(session.reusable, true);
});

test('a refused connection is a temporary failure, and a name is no address', async (t) => {
  const sink = await SmtpSink.start(t);
  const { port } = sink;
  await sink.close();
  assert.equal(described(await failureOf(openSession(destinationOf({ port })))), 'connect connect 451 4.4.1 temporary');
  const named = openSession({ ...destinationOf({ port }), address: 'localhost' });
  assert.equal(described(await failureOf(named)), 'local connect 451 4.3.0 temporary');
  const from = openSession({ ...destinationOf({ port }), localAddress: '192.0.2.1' });
  assert.equal(described(await failureOf(from)), 'local connect 451 4.3.0 temporary');
});

test('a connection that says something or ends while it is not used is not used again', async (t) => {
  for (const rude of [{ raw: '250 2.0.0 Sunk\r\n' }, { close: '250 2.0.0 Sunk' }] as const) {
    const sink = await SmtpSink.start(t, { steps: { dot: rude } });
    const session = await open(t, sink);
    assert.deepEqual(outcomes(await session.send(message())), ['delivered']);
    if ('raw' in rude) assert.equal(session.reusable, true);
    sink.cut();
    await sink.until(({ open: left }) => left === 0);
    while (session.failure === undefined) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(session.reusable, false);
    assert.equal(session.failure.afterDot, false);
  }
});
