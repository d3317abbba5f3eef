import assert from 'node:assert/strict';
import { test } from 'node:test';
import { reply } from '../../kit/relay-queue/entries.js';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import { problem } from '../../../core/problem.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { type OutboundFixture, outboundFixture } from './outbound-fixture.js';

/** Gives each lease the next answers; the last ones for ever. */
function answering(
  { queue }: OutboundFixture,
  ...given: readonly NonNullable<Lease['holds']>[]
): { readonly leases: Lease[] } {
  const leases: Lease[] = [];
  const claim = queue.claim.bind(queue);
  queue.claim = async (options) =>
    (await claim(options)).map((lease) => {
      const holds = given[Math.min(leases.length, given.length - 1)] ?? (() => true);
      leases.push({ ...lease, holds });
      return leases.at(-1) ?? lease;
    });
  return { leases };
}

test('what another server has taken over is not sent, and what is given back counts no attempt', async (t) => {
  const sink = await SmtpSink.start(t);
  const fixture = await outboundFixture(t, { options: { port: sink.port } });
  const answers = [() => false, () => Promise.resolve(false), () => Promise.reject(new Error('away')), () => true];
  const { leases } = answering(fixture, ...answers);
  const entry = await fixture.delivered({ to: ['ben@example.com'], message: Buffer.alloc(300_000, 'Subject: x\r\n') });
  assert.equal(leases.length, 4);
  assert.deepEqual([entry.state, entry.attempts, entry.history.length], ['delivered', 1, 1]);
  assert.deepEqual([sink.messages.length, sink.connections], [1, 4]);
});

test('a lease that cannot be given back is no possible duplicate', async (t) => {
  const sink = await SmtpSink.start(t);
  const fixture = await outboundFixture(t, { options: { port: sink.port } });
  const { queue, sentences } = fixture;
  answering(fixture, () => false);
  queue.settle = () => Promise.reject(problem('conflict', 'Another server has it.'));
  await fixture.enqueue({ to: ['ben@example.com'] });
  await fixture.outbound.start();
  while (!sentences.some((sentence) => /cannot be given back/.test(sentence))) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.ok(!sentences.some((sentence) => /duplicate/.test(sentence)), sentences.join());
  assert.equal(sink.messages.length, 0);
});

test('a target of this server is asked to commit only while the lease holds', async (t) => {
  let calls = 0;
  const fixture = await outboundFixture(t, {
    deliver: async ({ mayCommit, recipients }) => {
      calls += 1;
      if ((await mayCommit?.()) !== true) throw problem('conflict');
      return recipients.map(({ address, hop }) => ({
        recipient: { address, hop, discarded: false },
        outcome: 'delivered',
      }));
    },
  });
  answering(
    fixture,
    () => false,
    () => Promise.reject(new Error('away')),
    () => true,
  );
  const hop = { target: 'box', destination: 'x' };
  const to = [{ address: 'anna@example.org', destination: 'target:box', hop, lastReply: reply(451, 'Later', 0) }];
  const entry = await fixture.delivered({ to });
  assert.deepEqual([calls, entry.state, entry.attempts], [3, 'delivered', 1]);
});

test('what one of several servers behind a target has is not forgotten', async (t) => {
  const fixture = await outboundFixture(t, {
    deliver: async ({ mayCommit, recipients }) => {
      await mayCommit?.();
      return recipients.map(({ address, hop }, index) =>
        index === 0
          ? { recipient: { address, hop, discarded: false }, outcome: 'delivered' }
          : {
              recipient: { address, hop, discarded: false },
              outcome: 'deferred',
              code: 451,
              status: '4.3.0',
              text: 'The message was taken back before its end',
            },
      );
    },
  });
  answering(fixture, () => false);
  const hop = { target: 'box', destination: 'x' };
  const to = ['a', 'b'].map((name) => ({ address: `${name}@example.org`, destination: 'target:box', hop }));
  const entry = await fixture.delivered({ to });
  assert.deepEqual(
    entry.recipients.map(({ state }) => state),
    ['delivered', 'deferred'],
  );
});
