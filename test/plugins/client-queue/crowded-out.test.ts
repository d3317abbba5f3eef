import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { atEnd } from '../../support/ending.js';
import { ForwardClock } from '../../support/forward-clock.js';
import { type SinkScript, SmtpSink } from '../../support/smtp-sink.js';
import { outboundFixture, outcomes } from './outbound-fixture.js';

const bad = Array.from({ length: 6 }, (_, nth) => `bad${nth}.example`);

/** Four connections, so that three are for trials and two for those that hang; mail for six domains that do. */
async function crowd(t: TestContext, steps: NonNullable<SinkScript['steps']>) {
  const clock = new ForwardClock();
  const sink = await SmtpSink.start(t, { steps });
  const fixture = await outboundFixture(t, { clock, options: { port: sink.port, maxConnections: 4 } });
  const uids: string[] = [];
  for (const domain of bad) uids.push(await fixture.enqueue({ to: [`user@${domain}`] }));
  await fixture.outbound.start();
  // So that the end waits for none that hangs.
  atEnd(t, () => sink.cut());
  await sink.until(({ open }) => open === 3);
  return {
    ...fixture,
    sink,
    /** Time passes, and the worker looks at what runs. */
    pass: async (): Promise<void> => {
      clock.advance(4);
      await pause(600);
    },
    /** One whose attempt has ended. */
    deferredOne: () =>
      Promise.any(
        uids.map((uid) => fixture.entryWhen(uid, ({ state, history }) => state === 'deferred' && history.length === 1)),
      ),
    entries: () => Promise.all(uids.map((uid) => fixture.queue.find(uid))),
  };
}

for (const step of ['greeting', 'ehlo', 'data'] as const) {
  test(`an attempt that hangs (${step}) is broken off when others need its connection, and its mail is tried again`, async (t) => {
    const { pass, deferredOne, outbound } = await crowd(t, { [step]: { silent: true } });
    await pass();
    const ended = await deferredOne();
    assert.equal(
      ended.recipients[0]?.lastReply?.text,
      '127.0.0.1: The server did not answer for long, and other mail needed the connection',
    );
    assert.equal(ended.history[0]?.possibleDuplicate, undefined);
    const site = await outbound.sites.find(ended.recipients[0]?.destination ?? '');
    assert.equal(outbound.pace(site).now?.hanging, true);
  });
}

test('none is broken off when the server may have the message, and no more of them are begun', async (t) => {
  const { pass, entries, sink } = await crowd(t, { dot: { silent: true } });
  for (let time = 0; time < 3; time += 1) await pass();
  assert.equal(sink.connections, 3);
  assert.deepEqual(
    (await entries()).flatMap((entry) => (entry?.state === 'deferred' ? outcomes(entry) : [])),
    [],
  );
});
