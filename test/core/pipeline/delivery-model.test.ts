import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import { problem } from '../../../core/problem.js';
import type { Recipient } from '../../../core/pipeline/transaction.js';
import { deliveryOf } from './delivery-fixture.js';
import { deferred, refused, type FakeTargetOptions } from './fake-target.js';

const outcomes: readonly ((recipient: Recipient) => RecipientOutcome)[] = [
  (recipient) => ({ recipient, outcome: 'delivered' }),
  deferred(),
  refused(),
];

/** Mostly good, for otherwise hardly a message would be delivered. */
const anyOutcomes = fc.array(fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.nat(2)), {
  minLength: 3,
  maxLength: 3,
});
const anyFailure = fc.option(
  fc.record({
    step: fc.constantFrom('start' as const, 'body' as const, 'commit' as const),
    error: fc.constantFrom(new Error('oops'), problem('mailbox-full'), problem('forbidden')),
  }),
  { nil: undefined, freq: 5 },
);

const anyTarget = fc.record({ picks: anyOutcomes, fails: anyFailure }).map(({ picks, fails }): FakeTargetOptions => {
  const outcome = (recipient: Recipient, index: number) => (outcomes[picks[index] ?? 0] ?? deferred())(recipient);
  return fails === undefined ? { outcome } : { outcome, fails };
});

const anyOwner = fc.option(
  anyFailure.map((fails): FakeTargetOptions => (fails === undefined ? {} : { fails })),
  {
    nil: undefined,
  },
);

const anyWork = fc.record({
  one: anyTarget,
  two: anyTarget,
  retry: anyOwner,
  bounce: anyOwner,
  recipients: fc.array(fc.constantFrom('a@one', 'b@one', 'c@two', 'd@gone', 'e@discard', 'f@two'), {
    minLength: 1,
    maxLength: 3,
  }),
});

type Work = typeof anyWork extends fc.Arbitrary<infer T> ? T : never;

function workOf({ one, two, retry, bounce }: Work) {
  return deliveryOf({
    one,
    two,
    ...(retry !== undefined && { retry }),
    ...(bounce !== undefined && { bounce }),
  });
}

describe('whatever targets do', () => {
  test('over SMTP all recipients have the message exactly when the client gets 250', async () => {
    let taken = 0;
    await fc.assert(
      fc.asyncProperty(anyWork, async (given) => {
        const work = workOf(given);
        const { summary, replies } = await work.deliver(given.recipients);
        const wanted = given.recipients.filter((one) => one !== 'e@discard');
        if (summary.code < 300) taken += 1;
        assert.deepEqual(work.holders().toSorted(), summary.code < 300 ? wanted.toSorted() : []);
        assert.equal(replies.length, given.recipients.length);
        assert.equal(work.message.releases, 1);
      }),
      { numRuns: 3000 },
    );
    assert.ok(taken > 300, `only ${taken} were taken`);
  });

  test('over LMTP exactly the recipients with a 250 have the message', async () => {
    await fc.assert(
      fc.asyncProperty(anyWork, async (given) => {
        const work = workOf(given);
        const { replies } = await work.deliver(given.recipients, 'lmtp');
        const told = given.recipients.filter(
          (one, index) => one !== 'e@discard' && (replies[index]?.code ?? 500) < 300,
        );
        assert.equal(replies.length, given.recipients.length);
        assert.deepEqual(work.holders().toSorted(), told.toSorted());
        assert.equal(work.message.releases, 1);
      }),
      { numRuns: 3000 },
    );
  });

  test('a client whose message goes to a live target is told yes only when everybody has it, and else all but that one let go', async () => {
    await fc.assert(
      fc.asyncProperty(anyWork, async (given) => {
        for (const two of [given.two, { ...given.two, live: true }]) {
          const work = workOf({ ...given, one: { ...given.one, live: true }, two });
          const { summary } = await work.deliver(given.recipients);
          const wanted = given.recipients.filter((one) => one !== 'e@discard');
          const sent = ['one', 'two'].map((name) => work.fake(name)).filter(({ live }) => live);
          if (summary.code < 300) assert.deepEqual(work.holders().toSorted(), wanted.toSorted());
          // What was sent on cannot be taken back; everything else is.
          else
            assert.deepEqual(
              work.holders(),
              sent.flatMap(({ holds }) => holds),
            );
          assert.equal(work.message.releases, 1);
        }
      }),
      { numRuns: 3000 },
    );
  });
});
