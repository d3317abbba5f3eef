import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { parseAddress } from '../../../core/mime/address.js';
import { problem } from '../../../core/problem.js';
import { accept, change, defer, discard, hold, next, reject, route } from '../../../core/pipeline/verdict.js';
import { codes, deliveryOf, queued, summary, whereabouts } from './delivery-fixture.js';
import { deferred } from './fake-target.js';
import { transactionOf } from './pipeline-fixture.js';

const local = '451 4.3.0 Local error, try again later';
const add = (name: string, value: string) => ({ change: 'add-header', name, value }) as const;
const remove = (name: string) => ({ change: 'remove-header', name }) as const;
const addRecipient = (to: string) => ({ change: 'add-recipient', address: parseAddress(to) }) as const;
const removeRecipient = (to: string) => ({ change: 'remove-recipient', address: parseAddress(to) }) as const;

describe('hooks of a whole message', () => {
  for (const stage of ['message', 'deliver'] as const) {
    test(`refuse it in stage ${stage} for all its recipients, and no target hears of it`, async () => {
      for (const [verdict, said] of [
        [reject(550, '5.7.1', 'Spam'), '550 5.7.1 Spam'],
        [defer(450, '4.7.1', 'Later'), '450 4.7.1 Later'],
      ] as const) {
        const work = deliveryOf({ one: {} });
        work.pipeline.on('site', stage, {}, () => verdict);
        const result = await work.deliver(['a@one', 'b@one'], 'lmtp');
        assert.equal(summary(result), said);
        assert.deepEqual(result.replies, [result.summary, result.summary]);
        assert.deepEqual(work.steps, []);
        assert.equal(work.message.releases, 1);
      }
    });

    test(`discard it in stage ${stage}: the reply is 250, and no recipient has it`, async () => {
      const work = deliveryOf({ one: {} });
      work.pipeline.on('site', stage, {}, () => discard('spam'));
      const result = await work.deliver(['a@one']);
      assert.equal(summary(result), queued);
      assert.deepEqual(whereabouts(result), ['a@one discarded']);
      assert.deepEqual(work.steps, []);
      assert.equal(work.message.releases, 1);
    });

    test(`hold it in stage ${stage}: everybody's goes to the target hold`, async () => {
      const work = deliveryOf({ one: {}, hold: {} });
      work.pipeline.on('site', stage, {}, () => hold('odd'));
      const result = await work.deliver(['a@one', 'b@discard', 'c@gone']);
      assert.equal(summary(result), queued);
      assert.deepEqual(whereabouts(result), ['b@discard discarded', 'a@one hold', 'c@gone hold']);
      assert.deepEqual(work.fake('hold').holds, ['a@one', 'c@gone']);
      assert.deepEqual(work.fake('hold').recipients[0]?.hop?.data, {
        reason: 'odd',
        plugin: 'site',
        hop: { target: 'one', destination: 'a@one' },
      });
      assert.deepEqual(work.fake('one').holds, []);
    });

    test(`fail in stage ${stage}: 451, and it is let go of`, async () => {
      const work = deliveryOf({ one: {} });
      work.pipeline.on('site', stage, {}, () => {
        throw new Error('oops');
      });
      assert.equal(summary(await work.deliver(['a@one'])), local);
      assert.equal(work.message.releases, 1);
    });
  }

  test('see its size, its header fields and its text', async () => {
    const work = deliveryOf({ one: {} });
    let seen: unknown;
    work.pipeline.on('site', 'message', {}, async ({ message }) => {
      seen = [message.size, message.headers, await text(message.open())];
      return next();
    });
    await work.deliver(['a@one']);
    const whole = 'Subject: one\r\nX-Old: 1\r\n\r\nbody\r\n';
    assert.deepEqual(seen, [
      whole.length,
      [
        ['Subject', 'one'],
        ['X-Old', '1'],
      ],
      whole,
    ]);
  });
});

describe('changes to the header', () => {
  test('of all hooks are one rewrite, which later hooks see and targets get', async () => {
    const work = deliveryOf({ one: {} });
    const seen: unknown[] = [];
    work.pipeline.on('a', 'message', {}, () => change(add('X-Spam', 'no'), remove('x-old')));
    work.pipeline.on('b', 'message', {}, ({ message }) => {
      seen.push(message.headers);
      return change(add('X-Seen', 'yes'));
    });
    work.pipeline.on('c', 'deliver', {}, ({ message }) => {
      seen.push(message.headers[0]);
      return accept();
    });
    assert.equal(summary(await work.deliver(['a@one'])), queued);
    assert.deepEqual(seen, [
      [
        ['X-Spam', 'no'],
        ['Subject', 'one'],
      ],
      ['X-Spam', 'no'],
    ]);
    assert.deepEqual(work.message.edits, [
      {
        add: [
          ['X-Spam', 'no'],
          ['X-Seen', 'yes'],
        ],
        remove: ['x-old'],
      },
    ]);
    assert.equal(work.fake('one').bodies[0], work.message.rewritten);
    assert.equal(work.message.rewritten?.releases, 1);
  });

  test('take away what another hook has added', async () => {
    const work = deliveryOf({ one: {} });
    work.pipeline.on('a', 'message', {}, () => change(add('X-Spam', 'yes'), add('X-Other', '1')));
    work.pipeline.on('b', 'message', {}, () => change(remove('X-SPAM')));
    await work.deliver(['a@one']);
    assert.deepEqual(work.message.edits, [{ add: [['X-Other', '1']], remove: ['X-SPAM'] }]);
  });

  test('cost nothing when there are none', async () => {
    const work = deliveryOf({ one: {} });
    work.pipeline.on('a', 'message', {}, () => change());
    await work.deliver(['a@one']);
    assert.deepEqual(work.message.edits, []);
  });

  test('that cannot be written are the answer of the disk', async () => {
    const work = deliveryOf({ one: {} });
    work.message.failRewrite = problem('storage-full');
    work.pipeline.on('a', 'message', {}, () => change(add('X-Spam', 'yes')));
    assert.equal((await work.deliver(['a@one'])).summary.code, 452);
    assert.equal(work.message.releases, 1);
    assert.deepEqual(work.steps, []);
  });
});

describe('changes to the recipients', () => {
  test('add one with its hop', async () => {
    const work = deliveryOf({ one: {}, archive: {} });
    const hop = { target: 'archive', destination: 'all' };
    work.pipeline.on('site', 'message', {}, () => change({ ...addRecipient('log@archive'), hop }));
    const result = await work.deliver(['a@one']);
    assert.deepEqual(codes(result), [250]);
    assert.deepEqual(work.holders(), ['a@one', 'log@archive']);
  });

  test('add one without a hop, which is asked for like one of RCPT', async () => {
    const work = deliveryOf({ one: {}, archive: {} });
    work.pipeline.on('site', 'message', {}, () => change(addRecipient('log@archive')));
    work.pipeline.on('site', 'rcptTo', {}, ({ address }) => route({ target: address.domain, destination: '' }));
    assert.equal(summary(await work.deliver(['a@one'])), queued);
    assert.deepEqual(work.holders(), ['a@one', 'log@archive']);
  });

  test('add one that no target accepts: 451, for the message would not be what the hook wants', async () => {
    const work = deliveryOf({ one: {} });
    work.pipeline.on('site', 'message', {}, () => change(addRecipient('log@archive')));
    assert.equal(summary(await work.deliver(['a@one'])), local);
    assert.deepEqual(work.steps, []);
  });

  test('add one, and then all succeed or fail together, over LMTP too', async () => {
    const work = deliveryOf({ one: {}, archive: { fails: { step: 'commit', error: problem('storage-full') } } });
    const hop = { target: 'archive', destination: 'all' };
    work.pipeline.on('site', 'message', {}, () => change({ ...addRecipient('log@archive'), hop }));
    assert.deepEqual(codes(await work.deliver(['a@one', 'b@one'], 'lmtp')), [452, 452]);
    assert.deepEqual(work.holders(), []);
  });

  test('take one away, who is answered like the others', async () => {
    const work = deliveryOf({ one: {} });
    work.pipeline.on('site', 'message', {}, () => change(removeRecipient('b@ONE')));
    assert.deepEqual(codes(await work.deliver(['a@one', 'b@one', 'b@one'], 'lmtp')), [250, 250, 250]);
    assert.deepEqual(work.holders(), ['a@one']);
    await turn();
    assert.deepEqual(work.events, ['delivered a@one']);
  });

  test('leave the sender as unknown as it was: its mail is not reassigned', async () => {
    const work = deliveryOf({ one: {}, two: { outcome: deferred() }, retry: {} });
    work.pipeline.on('site', 'message', {}, () => change(removeRecipient('b@one')));
    const strange = { ...transactionOf(['a@one', 'b@one', 'c@two'], 'mx'), stranger: true };
    const result = await work.pipeline.snapshot().deliver(strange, work.message);
    assert.equal(result.summary.code, 452);
    assert.deepEqual(result.recipients, []);
    assert.deepEqual(work.holders(), []);
  });

  test('are what stage deliver and the targets see', async () => {
    const work = deliveryOf({ one: {} });
    let seen: readonly string[] = [];
    work.pipeline.on('site', 'message', {}, () => change(removeRecipient('b@one')));
    work.pipeline.on('site', 'deliver', {}, ({ transaction }) => {
      seen = transaction.recipients.map(({ address }) => address.address);
      return next();
    });
    await work.deliver(['a@one', 'b@one']);
    assert.deepEqual(seen, ['a@one']);
    assert.deepEqual(
      work.fake('one').transaction?.recipients.map(({ address }) => address.address),
      ['a@one'],
    );
  });
});
