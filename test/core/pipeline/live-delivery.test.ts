import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { problem } from '../../../core/problem.js';
import { reply } from '../../../core/smtp/protocol/replies.js';
import type { Recipient } from '../../../core/pipeline/transaction.js';
import { codes, deliveryOf, queued, summary } from './delivery-fixture.js';
import { deferred, refused } from './fake-target.js';
import { transactionOf } from './pipeline-fixture.js';

const upstream = reply(250, null, 'first line', '2.6.0 kept as 42');
const delivered = (recipient: Recipient) => ({ recipient, outcome: 'delivered', reply: upstream }) as const;

describe('a live target', () => {
  test('comes after the bodies of the others and before their commits', async () => {
    const work = deliveryOf({ live: { live: true }, one: {}, two: {} });
    await work.deliver(['a@live', 'b@one', 'c@two']);
    assert.deepEqual(work.steps.slice(3), [
      'one body',
      'two body',
      'live body',
      'live commit',
      'one commit',
      'two commit',
    ]);
  });

  test('alone gives the client its own yes, word for word', async () => {
    const work = deliveryOf({ live: { live: true, outcome: delivered } });
    const result = await work.deliver(['a@live', 'b@live']);
    assert.deepEqual(result.summary, upstream);
  });

  test('with others does not speak for them', async () => {
    const work = deliveryOf({ live: { live: true, outcome: delivered }, one: {} });
    assert.equal(summary(await work.deliver(['a@live', 'b@one'])), queued);
  });

  test('alone gives the client its own no', async () => {
    for (const [outcome, text] of [
      [refused(554, '5.7.1', 'Spam'), '554 5.7.1 Spam'],
      [deferred(450, '4.7.1', 'Later'), '450 4.7.1 Later'],
    ] as const) {
      const work = deliveryOf({ live: { live: true, outcome } });
      assert.equal(summary(await work.deliver(['a@live'])), text);
    }
  });

  test('that defers makes the client retry the whole message, and no recipient has it', async () => {
    const work = deliveryOf({ live: { live: true, outcome: deferred(450, '4.7.1', 'Later') }, one: {}, retry: {} });
    assert.equal(summary(await work.deliver(['a@live', 'b@one'])), '450 4.7.1 Later');
    assert.deepEqual(work.holders(), []);
    assert.ok(!work.steps.includes('one commit'));
  });

  test('that says later when another live one has it lets retry own its recipients', async () => {
    const later = deferred(450, '4.7.1', 'Later');
    const work = deliveryOf({
      live: { live: true, outcome: delivered },
      next: { live: true, outcome: later },
      retry: {},
    });
    assert.equal(summary(await work.deliver(['a@live', 'b@next'])), queued);
    assert.deepEqual(work.holders(), ['a@live', 'b@next']);
  });

  test('that is lost after the dot is 4yz, and no other recipient has it', async () => {
    const lost = { step: 'commit', error: problem('unavailable', 'The connection was lost') } as const;
    const work = deliveryOf({ live: { live: true, fails: lost }, one: {} });
    assert.equal(summary(await work.deliver(['a@live', 'b@one'])), '451 4.3.2 The connection was lost');
    assert.deepEqual(work.holders(), []);
  });

  test('that refuses lets the others have it when a bounce is sure', async () => {
    const work = deliveryOf({ live: { live: true, outcome: refused() }, one: {}, bounce: {} });
    assert.equal(summary(await work.deliver(['a@live', 'b@one'])), queued);
    assert.deepEqual(work.holders(), ['b@one', 'a@live']);
    assert.deepEqual(work.fake('bounce').holds, ['a@live']);
    assert.ok(work.steps.indexOf('bounce body') < work.steps.indexOf('one commit'));
  });

  test('that refuses is the answer for all when the bounce fails', async () => {
    for (const step of ['start', 'body', 'commit'] as const) {
      const fails = { step, error: new Error('oops') };
      const work = deliveryOf({ live: { live: true, outcome: refused() }, one: {}, bounce: { fails } });
      assert.equal(summary(await work.deliver(['a@live', 'b@one'])), '550 5.1.1 Unknown');
      assert.deepEqual(work.holders(), []);
    }
  });

  test('that refuses is the reply for all when no target can bounce', async () => {
    const work = deliveryOf({ live: { live: true, outcome: refused() }, one: {} });
    assert.equal(summary(await work.deliver(['a@live', 'b@one'])), '550 5.1.1 Unknown');
    assert.deepEqual(work.holders(), []);
  });

  test('that takes some needs owners for the others', async () => {
    const mixed = (recipient: Recipient, index: number) => (index === 0 ? delivered(recipient) : deferred()(recipient));
    const owned = deliveryOf({ live: { live: true, outcome: mixed }, retry: {} });
    assert.equal(summary(await owned.deliver(['a@live', 'b@live'])), queued);
    assert.deepEqual(owned.fake('retry').holds, ['b@live']);
    const alone = deliveryOf({ live: { live: true, outcome: mixed } });
    assert.equal((await alone.deliver(['a@live', 'b@live'])).summary.code, 452);
    assert.ok(alone.lines.some(({ text }) => text.startsWith('possible duplicate')));
  });

  test('that has taken it, while another fails at its commit, is sent to again rather than that one loses it', async () => {
    const fails = { step: 'commit', error: problem('storage-full') } as const;
    const work = deliveryOf({ live: { live: true, outcome: delivered }, one: { fails } });
    assert.equal((await work.deliver(['a@live', 'b@one'])).summary.code, 452);
    assert.ok(work.lines.some(({ text }) => text.startsWith('possible duplicate')));
  });

  test('is not asked when another cannot be made durable', async () => {
    const fails = { step: 'body', error: problem('storage-full') } as const;
    const work = deliveryOf({ live: { live: true }, one: { fails } });
    assert.equal((await work.deliver(['a@live', 'b@one'])).summary.code, 452);
    assert.deepEqual(work.fake('live').holds, []);
  });

  test('that refuses shares an owner with another one that does, and with one that refuses at its commit', async () => {
    const some = (recipient: Recipient, index: number) => (index === 0 ? delivered(recipient) : deferred()(recipient));
    const work = deliveryOf({
      live: { live: true, outcome: some },
      next: { live: true, outcome: deferred() },
      one: { outcome: deferred() },
      two: {},
      retry: {},
    });
    assert.equal(summary(await work.deliver(['a@live', 'b@live', 'c@next', 'd@one', 'e@two'])), queued);
    assert.deepEqual(work.fake('retry').holds, ['b@live', 'c@next', 'd@one']);
    assert.deepEqual(work.holders().toSorted(), ['a@live', 'b@live', 'c@next', 'd@one', 'e@two']);
  });

  test('that refuses, as all others do, is no bounce but the answer', async () => {
    const refuses = { live: true, outcome: refused() };
    const work = deliveryOf({ live: refuses, next: refuses, bounce: {} });
    assert.equal(summary(await work.deliver(['a@live', 'b@next'])), '550 5.1.1 Unknown');
    assert.deepEqual(work.holders(), []);
  });

  test('is not asked for a stranger when another knows that it will not take all', async () => {
    const targets = { live: { live: true }, one: { foresees: true, outcome: deferred() }, retry: {} };
    const work = deliveryOf(targets);
    const transaction = { ...transactionOf(['a@live', 'b@one']), stranger: true };
    const result = await work.pipeline.snapshot().deliver(transaction, work.message);
    assert.equal(summary(result), '452 4.2.2 Full');
    assert.deepEqual(work.holders(), []);
    const known = deliveryOf(targets);
    assert.equal(summary(await known.deliver(['a@live', 'b@one'])), queued);
    assert.deepEqual(known.holders(), ['a@live', 'b@one']);
  });

  test('over LMTP answers for its own recipients', async () => {
    const mixed = (recipient: Recipient, index: number) => (index === 0 ? delivered(recipient) : refused()(recipient));
    const work = deliveryOf({ live: { live: true, outcome: mixed }, one: {} });
    const result = await work.deliver(['a@live', 'b@one', 'c@live'], 'lmtp');
    assert.deepEqual(codes(result), [250, 250, 550]);
    assert.deepEqual(result.replies[0], upstream);
  });
});
