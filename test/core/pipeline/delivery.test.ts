import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, test } from 'node:test';
import { parseAddress } from '../../../core/mime/address.js';
import { problem } from '../../../core/problem.js';
import { DeliveryDeadline } from '../../../core/pipeline/commit.js';
import type { Recipient } from '../../../core/pipeline/transaction.js';
import { codes, deliveryOf, queued, summary, whereabouts } from './delivery-fixture.js';
import { deferred, refused, type Step } from './fake-target.js';
import { recipientOf, transactionOf } from './pipeline-fixture.js';

const oops = new Error('oops: /srv/secret/path');
const local = '451 4.3.0 Local error, try again later';

describe('a message for several targets', () => {
  test('is durable everywhere before the first commit', async () => {
    const work = deliveryOf({ one: {}, two: {} });
    assert.equal(summary(await work.deliver(['a@one', 'b@two', 'c@one'])), queued);
    assert.deepEqual(work.steps, ['one start', 'two start', 'one body', 'two body', 'one commit', 'two commit']);
    assert.deepEqual(work.holders(), ['a@one', 'c@one', 'b@two']);
    assert.equal(work.message.releases, 1);
  });

  for (const mode of ['mx', 'lmtp'] as const) {
    test(`F-R6 lets its targets begin only when all have committed (${mode})`, async () => {
      const work = deliveryOf({ one: {}, two: {} });
      await work.deliver(['a@one', 'b@two'], mode);
      assert.deepEqual([work.fake('one').completions, work.fake('two').completions], [1, 1]);
      const failing = deliveryOf({ one: {}, two: { fails: { step: 'commit', error: oops } } });
      await failing.deliver(['a@one', 'b@two'], mode);
      const expected = mode === 'lmtp' ? [1, 0] : [0, 0];
      assert.deepEqual([failing.fake('one').completions, failing.fake('two').completions], expected);
    });
  }

  test('is emitted to the watchers for each recipient', async () => {
    const work = deliveryOf({ one: {}, two: {} });
    await work.deliver(['a@one', 'b@two']);
    await turn();
    assert.deepEqual(work.events, ['delivered a@one', 'delivered b@two']);
  });

  test('reaches each target once, with its duplicates', async () => {
    const work = deliveryOf({ one: {} });
    const result = await work.deliver(['a@one', 'a@one'], 'lmtp');
    assert.deepEqual(codes(result), [250, 250]);
    assert.equal(work.fake('one').recipients.length, 2);
  });

  test('has no owner for recipients of a target that is not there', async () => {
    const work = deliveryOf({ one: {} });
    assert.equal(summary(await work.deliver(['a@one', 'b@gone'])), local);
    assert.deepEqual(work.holders(), []);
    assert.equal(work.message.releases, 1);
  });

  test('has no owner for a recipient without a hop', async () => {
    const work = deliveryOf({ one: {} });
    const lost = { address: parseAddress('a@one'), hop: undefined, discarded: false };
    assert.equal(summary(await work.deliver([lost])), local);
  });

  test('of a stranger is queued for those that their target leaves to the queue, and for no others', async () => {
    const stranger = (...recipients: readonly string[]) => ({ ...transactionOf(recipients, 'mx'), stranger: true });
    const left = (recipient: Recipient) => ({ ...deferred()(recipient), queue: true }) as const;
    for (const recipients of [['b@two'], ['a@one', 'b@two']]) {
      const work = deliveryOf({ one: {}, two: { outcome: left }, retry: {} });
      const { summary: reply } = await work.pipeline.snapshot().deliver(stranger(...recipients), work.message);
      assert.equal(reply.code, 250);
      assert.deepEqual(
        work.fake('retry').recipients.map(({ address }) => address.address),
        ['b@two'],
      );
    }
    const work = deliveryOf({ one: {}, two: { outcome: left }, three: { outcome: deferred() }, retry: {} });
    const { summary: reply } = await work.pipeline.snapshot().deliver(stranger('b@two', 'c@three'), work.message);
    assert.equal(reply.code, 452);
    assert.deepEqual(work.holders(), []);
  });

  for (const step of ['start', 'body', 'commit'] as const satisfies readonly Step[]) {
    test(`of which one fails at ${step} is nowhere and 451, without a word of the cause`, async () => {
      const work = deliveryOf({ one: {}, two: { fails: { step, error: oops } }, three: {} });
      const result = await work.deliver(['a@one', 'b@two', 'c@three']);
      assert.equal(summary(result), local);
      assert.deepEqual(work.holders(), []);
      assert.equal(work.message.releases, 1);
      await turn();
      assert.deepEqual(work.events, []);
    });

    test(`of which one refuses by a problem at ${step} gets that problem's reply`, async () => {
      const work = deliveryOf({ one: {}, two: { fails: { step, error: problem('mailbox-full') } } });
      assert.equal(summary(await work.deliver(['a@one', 'b@two'])), '452 4.2.2 The mailbox is full');
      assert.deepEqual(work.holders(), []);
    });
  }

  test('is refused permanently only when no failure is temporary', async () => {
    const permanent = { step: 'body', error: problem('forbidden', 'No') } as const;
    const temporary = { step: 'body', error: problem('mailbox-full') } as const;
    const one = deliveryOf({ one: { fails: permanent }, two: {} });
    assert.equal(summary(await one.deliver(['a@one', 'b@two'])), '550 5.7.1 No');
    const both = deliveryOf({ one: { fails: permanent }, two: { fails: temporary } });
    assert.equal((await both.deliver(['a@one', 'b@two'])).summary.code, 452);
  });

  test('is rolled back as a whole when a target accepts only some: the others would have no owner', async () => {
    for (const [outcome, code] of [
      [deferred(), 452],
      [refused(), 550],
    ] as const) {
      const work = deliveryOf({
        one: {
          outcome: (recipient, index) => (index === 0 ? { recipient, outcome: 'delivered' } : outcome(recipient)),
        },
      });
      assert.equal((await work.deliver(['a@one', 'b@one'])).summary.code, code);
      assert.deepEqual(work.holders(), []);
    }
  });

  test('is 250 when others own what a target does not take', async () => {
    const work = deliveryOf({
      one: {},
      two: { outcome: deferred() },
      three: { outcome: refused() },
      retry: {},
      bounce: {},
    });
    const result = await work.deliver(['a@one', 'b@two', 'c@three']);
    assert.equal(summary(result), queued);
    assert.deepEqual(whereabouts(result), ['a@one one', 'b@two retry', 'c@three bounce']);
    assert.deepEqual(work.holders(), ['a@one', 'b@two', 'c@three']);
    const { hop } = work.fake('retry').recipients[0] ?? {};
    assert.deepEqual(hop?.data, {
      reply: { code: 452, status: '4.2.2', lines: ['Full'] },
      hop: { target: 'two', destination: 'b@two' },
    });
    await turn();
    assert.deepEqual(work.events, ['delivered a@one', 'deferred b@two', 'bounced c@three']);
  });

  test('is rolled back when the owner of the others fails', async () => {
    for (const step of ['start', 'body', 'commit'] as const) {
      const work = deliveryOf({ one: {}, two: { outcome: deferred() }, retry: { fails: { step, error: oops } } });
      assert.equal((await work.deliver(['a@one', 'b@two'])).summary.code, 452);
      assert.deepEqual(work.holders(), []);
    }
  });

  test('needs no other owner when no target took anybody', async () => {
    const work = deliveryOf({ one: { outcome: refused() }, bounce: {} });
    assert.equal(summary(await work.deliver(['a@one'])), '550 5.1.1 Unknown');
    assert.deepEqual(
      work.fake('bounce').steps.filter((step) => step.startsWith('bounce')),
      [],
    );
  });

  test('with discarded recipients only is 250 and goes nowhere', async () => {
    const work = deliveryOf({ one: {} });
    assert.equal(summary(await work.deliver(['a@discard', 'b@discard'])), queued);
    assert.deepEqual(work.steps, []);
    assert.equal(work.message.releases, 1);
  });

  for (const [why, outcomes] of [
    ['too few', []],
    ['other recipients', [{ recipient: recipientOf('x@one'), outcome: 'delivered' }]],
    ['a permanent code for a while', [deferred(550)(recipientOf('a@one'))]],
    ['a temporary code for good', [refused(450)(recipientOf('a@one'))]],
    [
      'a refusal as delivered',
      [{ recipient: recipientOf('a@one'), outcome: 'delivered', reply: { code: 550, status: null, lines: ['No'] } }],
    ],
  ] as const) {
    test(`whose target answers for ${why} is 451 and rolled back`, async () => {
      const work = deliveryOf({ one: { outcomes } });
      assert.equal(summary(await work.deliver(['a@one'])), local);
      assert.equal(work.fake('one').aborts, 1);
      assert.deepEqual(work.holders(), []);
    });
  }
});

describe('a message over LMTP', () => {
  test('has an answer for each recipient in the order of RCPT, and a failing target concerns its own', async () => {
    const full = { step: 'body', error: problem('mailbox-full') } as const;
    const work = deliveryOf({ one: {}, two: { fails: full }, three: { outcome: refused() } });
    const result = await work.deliver(['b@two', 'a@one', 'c@three', 'd@discard', 'b@two', 'e@gone'], 'lmtp');
    assert.deepEqual(codes(result), [452, 250, 550, 250, 452, 451]);
    assert.equal(summary(result), queued);
    assert.deepEqual(work.holders(), ['a@one']);
    assert.equal(work.fake('two').aborts, 1);
    assert.ok(!work.steps.includes('two commit'));
    await turn();
    assert.deepEqual(work.events.toSorted(), [
      'delivered a@one',
      'rejected b@two',
      'rejected b@two',
      'rejected c@three',
      'rejected e@gone',
    ]);
  });

  test('is bodies first, too', async () => {
    const work = deliveryOf({ one: {}, two: {} });
    await work.deliver(['a@one', 'b@two'], 'lmtp');
    assert.deepEqual(work.steps, ['one start', 'two start', 'one body', 'two body', 'one commit', 'two commit']);
  });
});

describe('a delivery that takes too long', () => {
  for (const step of ['start', 'body', 'commit'] as const satisfies readonly Step[]) {
    test(`in ${step} is 451, and what the target does later is revoked`, async () => {
      const work = deliveryOf({ one: {}, slow: { hangs: step } });
      const timeout = new DeliveryDeadline();
      const delivering = work.deliver(['a@one', 'b@slow'], 'mx', timeout);
      await turn();
      timeout.end();
      assert.equal(summary(await delivering), local);
      assert.equal(work.message.releases, 0);
      work.fake('slow').release();
      await turn();
      assert.equal(work.fake('slow').aborts, 1);
      assert.deepEqual(work.holders(), []);
      assert.equal(work.message.releases, 1);
    });
  }

  test('before it begins is not begun', async () => {
    const work = deliveryOf({ one: {} });
    const timeout = new DeliveryDeadline();
    timeout.end();
    assert.equal(summary(await work.deliver(['a@one'], 'mx', timeout)), local);
    assert.deepEqual(work.steps, []);
    await turn();
    assert.equal(work.message.releases, 1);
  });
});
