import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { systemClock } from '../../../core/clock.js';
import type { SiteShares } from '../../../core/contracts/cluster.js';
import type { Decision } from '../../../core/pipeline/transaction-pipeline.js';
import type { HopSearch } from '../../../core/dns/next-hop.js';
import { type SinkMoment, type SinkScript, SmtpSink } from '../../support/smtp-sink.js';
import { freePort } from '../../support/free-port.js';
import { untilTrue } from '../../support/until.js';
import { outboundFixture, outcomes, type OutboundFixtureOptions } from './outbound-fixture.js';

type Test = Parameters<typeof outboundFixture>[0];

/** Mail for `sink.example` goes to a server that behaves as scripted. */
async function withSink(t: Test, script: SinkScript = {}, given: OutboundFixtureOptions = {}) {
  const sink = await SmtpSink.start(t, script);
  const fixture = await outboundFixture(t, { ...given, options: { port: sink.port, ...given.options } });
  return { ...fixture, sink };
}

const quick = {
  greetingMs: 300,
  helloMs: 300,
  mailMs: 300,
  rcptMs: 300,
  dataMs: 300,
  blockMs: 300,
  finalMs: 300,
  attemptMs: 1000,
};

test('a message is delivered at once, byte for byte, from its trace fields on', async (t) => {
  const { delivered, sink } = await withSink(t);
  const entry = await delivered({ to: ['bob@sink.example', 'carl@sink.example'] });
  assert.deepEqual(outcomes(entry), ['bob@sink.example delivered 250 2.0.0', 'carl@sink.example delivered 250 2.0.0']);
  assert.equal(sink.messages.length, 1);
  assert.equal(sink.messages[0]?.sender, 'anna@example.org');
  assert.match(String(sink.messages[0]?.text), /^Received: by here\r\nSubject: hello\r\n/);
  const [attempt] = entry.history;
  assert.deepEqual(
    [attempt?.outcome, attempt?.host, attempt?.tls],
    ['delivered', `127.0.0.1[127.0.0.1]:${sink.port}`, null],
  );
});

describe('a server that behaves so', () => {
  const cases: Readonly<Record<string, readonly [SinkScript['steps'], expected: string]>> = {
    'refuses the recipient': [{ rcpt: '550 5.1.1 No such user' }, 'bounced 550 5.1.1'],
    'defers the recipient': [{ rcpt: '450 4.2.0 Greylisted' }, 'deferred 450 4.2.0'],
    'says 552 to the recipient': [{ rcpt: '552 Too many recipients' }, 'deferred 552 5.0.0'],
    'refuses the sender': [{ mail: '550 5.7.1 Go away' }, 'bounced 550 5.7.1'],
    'refuses the message': [{ dot: '554 5.6.0 Spam' }, 'bounced 554 5.6.0'],
    'defers the message': [{ dot: '451 4.3.0 Later' }, 'deferred 451 4.3.0'],
    'answers 999 to the dot': [{ dot: '999 what' }, 'deferred 451 4.5.0'],
    'answers 354 to the dot': [{ dot: '354 more' }, 'deferred'],
    'answers garbage': [{ mail: 'hello there' }, 'deferred 451 4.5.0'],
    'is silent behind the dot': [{ dot: { silent: true } }, 'deferred 451 4.4.2'],
    'stalls at MAIL': [{ mail: { stall: true } }, 'deferred 451 4.4.2'],
    'stalls in the greeting': [{ greeting: { stall: true } }, 'deferred 451 4.4.2'],
    'drips its answer to EHLO': [{ ehlo: { drip: '250-x\r\n', everyMs: 50 } }, 'deferred 451 4.4.2'],
    'resets at RCPT': [{ rcpt: { reset: true } }, 'deferred 451 4.4.2'],
    'resets behind the dot': [{ dot: { reset: true } }, 'deferred 451 4.4.2'],
    'closes with 421': [{ mail: { close: '421 4.3.2 Shutting down' } }, 'deferred 421 4.3.2'],
    'says no to everybody in its greeting': [{ greeting: '554 No mail here' }, 'bounced 554 5.0.0'],
  };
  for (const [title, [steps, expected]] of Object.entries(cases)) {
    test(`${title}: ${expected}`, async (t) => {
      const { delivered } = await withSink(t, { ...(steps && { steps }) }, { deadlines: quick });
      const entry = await delivered({ to: ['bob@sink.example'] });
      const [outcome = ''] = outcomes(entry);
      assert.ok(outcome.startsWith(`bob@sink.example ${expected}`), outcome);
      assert.equal(entry.attempts, 1);
    });
  }

  test('loses the connection after the dot: it is tried again, and the attempt says that it may have arrived', async (t) => {
    const { delivered } = await withSink(t, { steps: { dot: { reset: true } } });
    const [attempt] = (await delivered({ to: ['bob@sink.example'] })).history;
    assert.deepEqual([attempt?.outcome, attempt?.possibleDuplicate], ['lost', true]);
  });

  test('takes some and refuses others: each has its own answer', async (t) => {
    const script: SinkScript = { steps: { rcpt: [undefined, '550 5.1.1 No', '450 4.2.2 Full'] } };
    const { delivered, submissions, entryWhen } = await withSink(t, script);
    const entry = await delivered({ to: ['a@sink.example', 'b@sink.example', 'c@sink.example'] });
    assert.deepEqual(
      entry.recipients.map(({ state }) => state),
      ['delivered', 'bounced', 'deferred'],
    );
    assert.equal(entry.history[0]?.outcome, 'partial');
    await entryWhen(entry.uid, ({ notices }) => notices.length === 0);
    assert.deepEqual(
      submissions.map(({ id, reversePath, recipients }) => [id, reversePath, recipients[0]?.address]),
      [[`${entry.uid}-1`, null, 'anna@example.org']],
    );
  });

  test('takes a hundred recipients at a time and no more: all of a large envelope get it', async (t) => {
    const rcpt = ({ nth }: SinkMoment) => (nth < 100 ? undefined : '550 5.5.3 Too many recipients');
    const { delivered } = await withSink(t, { steps: { rcpt } });
    const entry = await delivered({ to: Array.from({ length: 250 }, (_, n) => `r${n}@sink.example`) });
    assert.deepEqual(new Set(entry.recipients.map(({ state }) => state)), new Set(['delivered']));
  });

  test('stalls: others are delivered meanwhile', async (t) => {
    const stalling = await SmtpSink.start(t, { steps: { mail: { stall: true } } });
    const friendly = await SmtpSink.start(t);
    const route = (port: number) => ({ mx: ['127.0.0.1'], port, tls: 'never' });
    const routes = { bad: route(stalling.port), good: route(friendly.port) };
    const fixture = await outboundFixture(t, { options: { routes } });
    for (let n = 0; n < 30; n += 1)
      await fixture.enqueue({ to: [{ address: 'x@bad.example', destination: 'route:bad' }] });
    const uid = await fixture.enqueue({ to: [{ address: 'y@good.example', destination: 'route:good' }] });
    await fixture.outbound.start();
    assert.equal((await fixture.tried(uid)).state, 'delivered');
    await stalling.close();
  });
});

describe('several servers of a domain', () => {
  test('the next one is asked when one cannot be reached, and the dead one is left alone for a while', async (t) => {
    const fixture = await withSink(t, {}, { hops: { 'sink.example': ['127.0.0.9', '127.0.0.1'] } });
    const first = await fixture.delivered({ to: ['bob@sink.example'] });
    assert.equal(first.state, 'delivered');
    const second = await fixture.tried(await fixture.enqueue({ to: ['bob@sink.example'] }));
    assert.equal(second.state, 'delivered');
  });

  test('a refusal in the greeting is permanent only when all servers refuse', async (t) => {
    const port = await freePort();
    await SmtpSink.start(t, { steps: { greeting: '554 5.3.2 Not I' } }, port);
    const hops = { 'sink.example': ['127.0.0.1', '127.0.0.9'] };
    const fixture = await outboundFixture(t, { hops, options: { port } });
    assert.equal((await fixture.delivered({ to: ['bob@sink.example'] })).state, 'deferred');
  });

  test('a refusal in the greeting of all of many servers is permanent', async (t) => {
    const port = await freePort();
    await SmtpSink.start(t, { steps: { greeting: '554 5.3.2 Not I' } }, port);
    const hops = { 'sink.example': ['127.0.0.1', '127.0.0.1', '127.0.0.1', '127.0.0.1'] };
    const fixture = await outboundFixture(t, { hops, options: { port } });
    assert.deepEqual(outcomes(await fixture.delivered({ to: ['bob@sink.example'] })), [
      'bob@sink.example bounced 554 5.3.2',
    ]);
  });

  test('no server there: deferred with the cause, and the next message costs no call', async (t) => {
    const port = await freePort();
    const fixture = await outboundFixture(t, { options: { port } });
    const entry = await fixture.delivered({ to: ['bob@sink.example'] });
    assert.deepEqual(outcomes(entry), ['bob@sink.example deferred 451 4.4.1']);
    const sink = await SmtpSink.start(t, {}, port);
    const again = await fixture.tried(await fixture.enqueue({ to: ['bob@sink.example'] }));
    assert.equal(again.state, 'deferred');
    assert.equal(sink.connections, 0);
    fixture.outbound.forgetFailures();
    const late = await fixture.tried(await fixture.enqueue({ to: ['bob@sink.example'] }));
    assert.equal(late.state, 'delivered');
  });

  test(
    'nobody can be called from here: deferred like any other fault, and not tried without a pause',
    { timeout: 10_000 },
    async (t) => {
      const options = { localAddress: '192.0.2.1' };
      const fixture = await outboundFixture(t, { options, hops: { 'one.example': ['127.0.0.1', '127.0.0.2'] } });
      const entry = await fixture.delivered({ to: ['bob@one.example'] });
      assert.deepEqual(outcomes(entry), ['bob@one.example deferred 451 4.3.0']);
      assert.match(entry.recipients[0]?.lastReply?.text ?? '', /No connection can be opened here \(EADDRNOTAVAIL\)/);
      assert.equal(entry.attempts, 1);
    },
  );

  test('an operator who wants some destinations tried again has only those asked for anew', async (t) => {
    const lost = {
      outcome: 'failed',
      reason: 'dns',
      code: 451,
      status: '4.4.3',
      text: 'No',
      permanent: false,
    } as const;
    const hops: Record<string, readonly string[] | HopSearch> = { 'a.example': lost, 'b.example': lost };
    const fixture = await withSink(t, {}, { hops });
    const both = ['x@a.example', 'x@b.example'];
    const before = await fixture.delivered({ to: both });
    assert.equal(before.state, 'deferred');
    hops['a.example'] = hops['b.example'] = ['127.0.0.1'];
    fixture.outbound.forgetFailures(['a.example']);
    const after = await fixture.tried(await fixture.enqueue({ to: both }));
    assert.deepEqual(
      after.recipients.map(({ state }) => state),
      ['delivered', 'deferred'],
    );
  });

  test('a domain that takes no mail is a permanent failure, a failed lookup a temporary one', async (t) => {
    const no = (permanent: boolean, code: number, status: string) =>
      ({ outcome: 'failed', reason: permanent ? 'null-mx' : 'dns', code, status, text: 'No', permanent }) as const;
    const hops = { 'null.example': no(true, 556, '5.1.10'), 'lost.example': no(false, 451, '4.4.3') };
    const fixture = await outboundFixture(t, { hops });
    const entry = await fixture.delivered({ to: ['a@null.example', 'b@lost.example'] });
    assert.deepEqual(outcomes(entry), ['a@null.example bounced 556 5.1.10', 'b@lost.example deferred 451 4.4.3']);
  });
});

test(
  'servers of which nothing is known, and that stall, keep no mail from those that answer',
  { timeout: 10_000 },
  async (t) => {
    const rcpt = ({ line }: SinkMoment) => (line.includes('@dead') ? { stall: true as const } : undefined);
    const { enqueue, outbound, tried, sink } = await withSink(
      t,
      { steps: { rcpt } },
      { options: { maxConnections: 8 } },
    );
    const first = await enqueue({ to: ['bob@sink.example'] });
    await outbound.start();
    assert.equal((await tried(first)).state, 'delivered');
    await enqueue({ to: Array.from({ length: 40 }, (_, n) => `x@dead${n}.example`) });
    await sink.until(({ connections }) => connections >= 6);
    // As many of them as can be are under way.
    await pause(300);
    const second = await enqueue({ to: ['bob@sink.example'] });
    assert.equal((await tried(second)).state, 'delivered');
    outbound.pause();
    sink.cut();
  },
);

test('a clock that jumps ahead has no mail returned that is tried then', async (t) => {
  const clock = { ahead: 0, now: () => systemClock.now() + clock.ahead, monotonic: () => systemClock.monotonic() };
  const options = { retry: { firstSeconds: 1, jitter: 0 } };
  const fixture = await withSink(t, { steps: { rcpt: '451 4.3.0 Later' } }, { clock, options });
  const { uid } = await fixture.delivered({ to: ['bob@sink.example'] });
  clock.ahead = 30 * 86_400_000;
  const { state } = await fixture.entryWhen(uid, ({ recipients }) => recipients[0]?.attempts === 2);
  assert.equal(state, 'deferred');
  assert.equal(fixture.submissions.length, 0);
});

test('messages share connections', async (t) => {
  const { sink, enqueue, outbound, tried } = await withSink(t, {}, { options: { destination: { maxConnections: 2 } } });
  const uids = [];
  for (let n = 0; n < 20; n += 1) uids.push(await enqueue({ to: ['bob@sink.example'] }));
  await outbound.start();
  for (const uid of uids) assert.equal((await tried(uid)).state, 'delivered');
  assert.ok(sink.connections <= 2, `${sink.connections} connections`);
});

test('LMTP: each recipient has its own reply after the dot', async (t) => {
  const sink = await SmtpSink.start(t, {
    protocol: 'lmtp',
    steps: { dot: [undefined, '550 5.1.1 No', '452 4.2.2 Full'] },
  });
  const routes = { boxes: { mx: ['127.0.0.1'], port: sink.port, protocol: 'lmtp', tls: 'never' } };
  const fixture = await outboundFixture(t, { options: { routes } });
  const to = ['a', 'b', 'c'].map((name) => ({ address: `${name}@x.example`, destination: 'route:boxes' }));
  const entry = await fixture.delivered({ to });
  assert.deepEqual(
    entry.recipients.map(({ state }) => state),
    ['delivered', 'bounced', 'deferred'],
  );
});

test('a suspended destination waits while others are sent, and continues when it is resumed', async (t) => {
  const fixture = await withSink(t);
  await fixture.controls.set('sink.example', { suspendedUntil: Infinity, reason: 'maintenance' }, 'ops');
  const held = await fixture.enqueue({ to: ['bob@sink.example'] });
  const other = await fixture.enqueue({ to: ['bob@other.example'] });
  await fixture.outbound.start();
  assert.equal((await fixture.tried(other)).state, 'delivered');
  assert.equal((await fixture.queue.find(held))?.state, 'queued');
  await fixture.controls.clear('sink.example');
  assert.equal((await fixture.tried(held)).state, 'delivered');
});

test('mail that waits for a share of a limit is reported again and again', async (t) => {
  let reports = 0;
  const shares: SiteShares = {
    of: (name, limits) => (name === 'sink.example' ? { ...limits, maxConnections: 0 } : limits),
    use: (name, _, { waiting }) => void (reports += name === 'sink.example' && waiting ? 1 : 0),
    onChange: () => () => undefined,
  };
  const fixture = await outboundFixture(t, { shares });
  await fixture.controls.set('sink.example', { maxConnections: 1 }, 'ops');
  await fixture.enqueue({ to: ['bob@sink.example'] });
  await fixture.outbound.start();
  await untilTrue('it was reported several times', () => reports > 3);
});

test('a route that is not configured any more defers, and says so', async (t) => {
  const fixture = await outboundFixture(t);
  const entry = await fixture.delivered({ to: [{ address: 'a@x.example', destination: 'route:gone' }] });
  assert.equal(entry.state, 'deferred');
  assert.match(entry.lastReply?.text ?? '', /route gone is not configured/);
});

test('a stop gives back what waits and finishes what is under way', async (t) => {
  const fixture = await withSink(t, {}, { options: { destination: { maxConnections: 1 } } });
  for (let n = 0; n < 50; n += 1) await fixture.enqueue({ to: ['bob@sink.example'] });
  await fixture.outbound.start();
  await fixture.sink.until(({ messages }) => messages.length >= 5);
  await fixture.outbound.stop();
  const sent = fixture.sink.messages.length;
  assert.equal(await fixture.queue.count({ state: ['delivered'] }), sent);
  assert.equal(await fixture.queue.count({ state: ['queued'] }), 50 - sent);
});

test('a hook before an attempt may refuse, defer or hold it: no server is asked', async (t) => {
  const verdicts: Readonly<Record<string, Decision>> = {
    'a@one.example': { outcome: 'refuse', reply: { code: 450, status: '4.7.1', lines: ['Not at night'] } },
    'b@two.example': { outcome: 'refuse', reply: { code: 550, status: '5.7.1', lines: ['Never'] } },
    'c@three.example': { outcome: 'pass', hop: { target: 'hold', destination: '', data: { reason: 'Look at it' } } },
  };
  const seen: string[] = [];
  const fixture = await outboundFixture(t, {
    mayAttempt: ({ recipients, destination }) => {
      seen.push(destination);
      return verdicts[recipients[0]?.address ?? ''] ?? { outcome: 'pass' };
    },
  });
  const uids: string[] = [];
  for (const to of Object.keys(verdicts)) uids.push(await fixture.enqueue({ to: [to] }));
  await fixture.outbound.start();
  const states: unknown[] = [];
  for (const uid of uids) {
    const { state, hold, lastReply } = await fixture.tried(uid);
    states.push([state, hold, lastReply?.text]);
  }
  assert.deepEqual(states, [
    ['deferred', null, 'Not at night'],
    ['bounced', null, 'Never'],
    ['held', 'Look at it', undefined],
  ]);
  assert.deepEqual(new Set(seen), new Set(['one.example', 'two.example', 'three.example']));
});
