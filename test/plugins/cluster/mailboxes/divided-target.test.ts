import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseAddress } from '../../../../core/mime/address.js';
import type { RecipientOutcome } from '../../../../core/pipeline/delivery-target.js';
import type { Recipient, Transaction } from '../../../../core/pipeline/transaction.js';
import { problem } from '../../../../core/problem.js';
import { dividedTarget, handedOver, type Whereabouts } from '../../../../plugins/cluster/mailboxes/divided-target.js';
import { deferred, FakeTarget, type FakeTargetOptions } from '../../../core/pipeline/fake-target.js';
import { MemoryMessage, transactionOf } from '../../../core/pipeline/pipeline-fixture.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';

const recipient = (name: string, data?: object): Recipient => ({
  address: parseAddress(`${name}@example.org`),
  hop: { target: 'mailbox', destination: `${name}@example.org`, ...(data && { data }) },
  discarded: false,
});

/** Names of mailboxes begin with their node; those of `mx1` are here. */
function divided(options: FakeTargetOptions & { readonly handed?: FakeTargetOptions['outcome'] } = {}) {
  const local = new FakeTarget('local', [], options);
  const handed: { node: string; id: string; fresh: boolean | undefined; names: readonly string[] }[] = [];
  let held = 0;
  const { log, sentences } = rememberingLog();
  const target = dividedTarget({
    target: local,
    find(username): Promise<Whereabouts> {
      const [, node = ''] = /^(mx\d|gone|moving)/.exec(username) ?? [];
      if (node === 'gone') return Promise.reject(problem('unavailable', 'The database is away.'));
      if (node === 'moving') return Promise.resolve({ at: 'nowhere' });
      if (node !== 'mx1') return Promise.resolve({ at: 'node', node });
      held += 1;
      let isHeld = true;
      const release = (): void => {
        if (isHeld) held -= 1;
        isHeld = false;
      };
      return Promise.resolve({ at: 'here', release });
    },
    otherNode: (username) => /^mx[23]/.exec(username)?.[0],
    usernameIn: (path) => path.split('/')[3],
    link: {
      deliver(node, { id, fresh }, recipients) {
        handed.push({ node, id, fresh, names: recipients.map(({ address }) => address.local) });
        const outcome =
          options.handed ?? ((one: Recipient): RecipientOutcome => ({ recipient: one, outcome: 'delivered' }));
        return Promise.resolve(recipients.map((one, index) => outcome(one, index)));
      },
    },
    log,
  });
  async function deliver(recipients: readonly Recipient[], more: Partial<Transaction> = {}) {
    const delivery = await target.start({ ...transactionOf(recipients), ...more }, recipients);
    await delivery.body(new MemoryMessage());
    return { delivery, outcomes: await delivery.commit() };
  }
  return { local, handed, deliver, target, sentences, held: () => held };
}

describe('the target of mailboxes that nodes divide', () => {
  test('gives each node its own, answers in order, and lets go of what is here at the end', async () => {
    const site = divided();
    const all = ['mx2-a', 'mx1-b', 'mx3-c', 'mx2-d', 'moving-e'].map((name) => recipient(name));
    const { delivery, outcomes } = await site.deliver(all);
    assert.deepEqual(
      outcomes.map((one) => [one.recipient.address.local, one.outcome]),
      [
        ['mx2-a', 'delivered'],
        ['mx1-b', 'delivered'],
        ['mx3-c', 'delivered'],
        ['mx2-d', 'delivered'],
        ['moving-e', 'deferred'],
      ],
    );
    const { queue } = outcomes[4] as { readonly queue?: true };
    assert.equal(queue, true);
    assert.deepEqual(
      site.handed.map(({ node, names }) => [node, names]),
      [
        ['mx2', ['mx2-a', 'mx2-d']],
        ['mx3', ['mx3-c']],
      ],
    );
    assert.equal(site.held(), 1);
    delivery.complete?.();
    assert.deepEqual([site.held(), site.local.completions], [0, 1]);
  });

  test('hands nothing over that a stranger has to send again', async () => {
    const site = divided({ outcome: deferred() });
    const both = [recipient('mx1-a'), recipient('mx2-b')];
    const { delivery, outcomes } = await site.deliver(both, { stranger: true });
    assert.deepEqual(site.handed, []);
    assert.deepEqual(
      outcomes.map((one) => 'queue' in one),
      [false, false],
    );
    await delivery.abort();
    assert.equal(site.held(), 0);
    assert.deepEqual(site.sentences, []);
    assert.equal((await divided({ outcome: deferred() }).deliver(both)).outcomes[1]?.outcome, 'delivered');
  });

  test('knows the outcomes of the mailboxes here before its commit', async () => {
    const site = divided({ foresees: true, outcome: deferred() });
    const { delivery } = await site.deliver([recipient('mx2-b'), recipient('mx1-a')], { stranger: true });
    assert.deepEqual(
      delivery.expected?.().map(({ outcome }) => outcome),
      ['delivered', 'deferred'],
    );
  });

  test('says that there may be a duplicate when what was handed over is refused as a whole', async () => {
    const site = divided();
    const { delivery } = await site.deliver([recipient('mx2-a')]);
    await delivery.abort();
    assert.match(site.sentences.join(), /possible duplicate/);
  });

  test('hands no mail further that another node has handed over', async () => {
    const site = divided();
    const { outcomes } = await site.deliver([recipient('mx2-a', handedOver)]);
    assert.equal(outcomes[0]?.outcome, 'deferred');
    assert.deepEqual(site.handed, []);
  });

  test('gives what the queue has taken over the id of its first try, everywhere', async () => {
    for (const name of ['mx1-a', 'mx2-a']) {
      const site = divided();
      await site.deliver([recipient(name)], { id: 'one-retry', repeatable: true, fresh: true });
      const { id, fresh } = site.handed[0] ?? site.local.transaction ?? {};
      assert.deepEqual([id, fresh], ['one', false]);
      // An id of a client that only looks like one.
      await site.deliver([recipient(name)], { id: 'two-retry' });
      assert.equal((site.handed[1] ?? site.local.transaction)?.id, 'two-retry');
    }
  });

  test('lets go of everything when it cannot begin', async () => {
    for (const options of [{ fails: { step: 'start', error: new Error('disk') } } as const, {}]) {
      const site = divided(options);
      const recipients = [recipient('mx1-a'), recipient('fails' in options ? 'mx2-b' : 'gone-b')];
      await assert.rejects(site.deliver(recipients));
      assert.equal(site.held(), 0);
    }
  });

  test('lets go of everything when it cannot be taken back', async () => {
    const site = divided();
    const start = site.local.start.bind(site.local);
    const abort = (): Promise<void> => Promise.reject(new Error('disk'));
    site.local.start = async (...given) => ({ ...(await start(...given)), abort });
    const { delivery } = await site.deliver([recipient('mx1-a'), recipient('mx2-b')]);
    await assert.rejects(delivery.abort(), /disk/);
    assert.equal(site.held(), 0);
  });

  test('explains where mail goes', async () => {
    const { target, local } = divided();
    const sentences = await target.explain?.({ target: 'mailbox', destination: 'mx2-a@example.org' });
    assert.deepEqual(sentences, ['It is handed to the node mx2, which has the mailbox mx2-a@example.org.']);
    assert.deepEqual(await target.explain?.({ target: 'mailbox', destination: 'mx1-a@example.org' }), []);
    assert.deepEqual(local.steps, []);
  });

  test('needs nothing from the log for a mailbox that is elsewhere', async () => {
    const find = divided().target.finder?.();
    assert.equal(await find?.({ folder: '/mail/example.org/mx2-a/new', name: 'x' }, Buffer.alloc(0)), null);
    assert.equal(await find?.({ folder: '/mail/example.org/mx1-a/new', name: 'x' }, Buffer.alloc(0)), undefined);
  });
});
