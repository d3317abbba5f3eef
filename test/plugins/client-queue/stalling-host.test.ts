import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { ForwardClock } from '../../support/forward-clock.js';
import { type Rule, type SinkScript, SmtpSink } from '../../support/smtp-sink.js';
import { outboundFixture, outcomes } from './outbound-fixture.js';

const domain = 'sink.example';

/** Mail for every domain goes to one host that behaves as scripted. */
async function hostFixture(
  t: TestContext,
  steps: NonNullable<SinkScript['steps']>,
  protocol: 'smtp' | 'lmtp' = 'smtp',
) {
  const clock = new ForwardClock();
  const sink = await SmtpSink.start(t, { protocol, steps });
  const deadlines = { greetingMs: 100, helloMs: 100, mailMs: 100, dataMs: 100, blockMs: 100, finalMs: 100 };
  const routes = { local: { mx: ['127.0.0.1'], port: sink.port, tls: 'never', protocol } };
  const fixture = await outboundFixture(t, { clock, deadlines, options: { port: sink.port, routes } });
  await fixture.outbound.start();
  const recipient = (at: string, nth: number) => {
    const address = `r${nth}@${at}`;
    return protocol === 'smtp' ? address : { address, destination: 'route:local' };
  };
  return {
    ...fixture,
    clock,
    sink,
    /** Another message, when it was tried. */
    next: async (domains: readonly string[] = [domain], expiresAt = clock.now() + 86_400_000) => {
      const said = sink.commands.length;
      const entry = await fixture.tried(await fixture.enqueue({ to: domains.map(recipient), entry: { expiresAt } }));
      return { entry, called: sink.commands.length > said };
    },
  };
}

const lost = { reset: true } as const;

describe('a host that answers everything and takes no message', () => {
  const cases: Readonly<Record<string, readonly [NonNullable<SinkScript['steps']>, text: string]>> = {
    'does not answer DATA': [{ data: { silent: true } }, 'The server did not answer in time'],
    'leaves at DATA': [{ data: { reset: true } }, 'The server closed the connection'],
    'leaves in the middle of the message': [{ body: { reset: true } }, 'The server closed the connection'],
    'does not answer the dot': [{ dot: { silent: true } }, 'The server did not answer in time'],
    'leaves behind the dot': [{ dot: { close: '' } }, 'The server closed the connection'],
  };
  for (const [title, [steps, text]] of Object.entries(cases)) {
    test(`${title}: after three messages it is left alone for two minutes`, async (t) => {
      const { next, clock, outbound } = await hostFixture(t, steps);
      for (let nth = 0; nth < 3; nth += 1) {
        assert.equal((await next()).called, true);
        const { connections, recovering } = outbound.pace(await outbound.sites.find(domain)).now ?? {};
        const expected = nth < 2 ? { connections: 5, recovering: false } : { connections: 1, recovering: true };
        assert.deepEqual({ connections, recovering }, expected, `behind ${nth + 1}`);
      }
      const { entry, called } = await next();
      assert.equal(called, false);
      assert.deepEqual(outcomes(entry), ['r0@sink.example deferred 451 4.4.2']);
      assert.equal(entry.recipients[0]?.lastReply?.text, `127.0.0.1: ${text}, at three messages in a row`);
      const [attempt] = entry.history;
      assert.deepEqual([attempt?.outcome, attempt?.possibleDuplicate], ['deferred', undefined], 'it was not sent');
      assert.ok((entry.nextAttempt ?? 0) > clock.now(), 'it has its own next try');
      clock.advance(119);
      assert.equal((await next()).called, false);
      clock.advance(2);
      assert.equal((await next()).called, true);
      assert.equal((await next()).called, false, 'that one was one more');
    });
  }

  test('has one try at a time until it answers, whatever that comes to', async (t) => {
    const { next, clock, outbound, queue, entryWhen } = await hostFixture(t, { dot: lost });
    const uids: string[] = [];
    for (let nth = 0; nth < 3; nth += 1) uids.push((await next()).entry.uid);
    clock.advance(121);
    const last = uids[2] ?? '';
    await queue.mutate({ uids: [last] }, { operation: 'retry' }, clock.now());
    await entryWhen(last, ({ history }) => history.length === 2);
    assert.equal(outbound.pace(await outbound.sites.find(domain)).now?.recovering, true);
  });

  test('is called for an operator, and for mail that would be returned without it', async (t) => {
    const { next, clock, outbound } = await hostFixture(t, { dot: lost });
    for (let nth = 0; nth < 3; nth += 1) await next();
    assert.equal((await next([domain], clock.now() - 1)).called, true);
    assert.equal((await next()).called, false);
    outbound.forgetFailures();
    assert.equal((await next()).called, true);
    assert.equal((await next()).called, true, 'its messages are counted anew');
  });
});

describe('a host that takes messages is not left alone', () => {
  test('one message that it hangs at, however often it is tried, is not counted again', async (t) => {
    const { next } = await hostFixture(t, { dot: [lost, lost, lost, undefined] });
    await next(['one.example', 'two.example', 'three.example']);
    const { entry } = await next();
    assert.equal(entry.state, 'delivered');
  });

  for (const [reply, state] of [
    ['250 2.0.0 Fine', 'delivered'],
    ['451 4.3.0 Later', 'deferred'],
    ['554 5.6.0 Spam', 'bounced'],
  ] as const) {
    test(`whatever it says at the end of a message, the count begins anew: ${reply}`, async (t) => {
      const { next } = await hostFixture(t, { dot: [lost, lost, reply, lost, lost, undefined] });
      await next();
      await next();
      assert.equal((await next()).entry.state, state);
      await next();
      await next();
      assert.equal((await next()).entry.state, 'delivered');
    });
  }

  test('LMTP: what it says of one recipient is said at the end of the message', async (t) => {
    const dot: Rule = ({ nth }) => (nth === 0 ? undefined : lost);
    const { next } = await hostFixture(t, { dot }, 'lmtp');
    for (let nth = 0; nth < 4; nth += 1) assert.equal((await next([domain, domain])).called, true);
  });

  test('a server that accepts no recipient and leaves has no message', async (t) => {
    const { next } = await hostFixture(t, { rcpt: '550 5.1.1 No such user', data: lost });
    for (let nth = 0; nth < 4; nth += 1) assert.equal((await next()).called, true);
  });
});

for (const step of ['greeting', 'ehlo', 'mail'] as const) {
  test(`a server that is silent (${step}) gets no more connections for it`, async (t) => {
    const { next, outbound } = await hostFixture(t, { [step]: { stall: true } });
    assert.equal((await next()).entry.state, 'deferred');
    const { connections, recovering } = outbound.pace(await outbound.sites.find(domain)).now ?? {};
    assert.deepEqual({ connections, recovering }, { connections: 5, recovering: false });
  });
}

test('what is refused in front of the message does not count, either way', async (t) => {
  const rcpt: Rule = ({ connection }) => (connection === 2 ? '550 5.1.1 No such user' : undefined);
  const { next } = await hostFixture(t, { rcpt, dot: lost });
  for (let nth = 0; nth < 4; nth += 1) assert.equal((await next()).called, true);
  assert.equal((await next()).called, false);
});
