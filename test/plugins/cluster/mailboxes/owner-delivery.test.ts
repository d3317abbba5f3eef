import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { untilTrue } from '../../../support/until.js';
import { OwnerSite, sendMail } from './owner-site.js';

describe('mailboxes that several nodes divide', { skip: skipWithout('postgres') }, () => {
  let site: OwnerSite;
  const ending = suiteEnding();
  before(async () => {
    site = await OwnerSite.start(ending, ['mx1', 'mx2', 'mx3']);
  });

  test('new ones go to the node with the fewest', async () => {
    await site.users('mx1', 'ann', 'bob', 'cat', 'dan', 'eve', 'fay');
    const counts = await site.sql('select count(*) from postern.mailbox_owner group by node order by node');
    assert.deepEqual(counts.split('\n').toSorted(), ['2', '2', '3']);
  });

  const everywhere = async (user: string): Promise<readonly string[]> =>
    (await Promise.all([...site.nodes.keys()].map((name) => site.subjects(name, user)))).flat();

  test('get their mail from whatever node has taken it, once', async () => {
    const users = ['ann', 'bob', 'cat', 'dan', 'eve', 'fay'];
    for (const name of ['mx1', 'mx2', 'mx3']) assert.equal(await sendMail(site.node(name), users, `from ${name}`), 250);
    for (const user of users) {
      const owner = await site.ownerOf(user);
      // A node that has just started may be known to the others a little later: the queue takes its mail until then.
      await untilTrue('all has arrived', async () => (await everywhere(user)).length >= 3, 15_000);
      for (const name of ['mx1', 'mx2', 'mx3'])
        assert.deepEqual(
          await site.subjects(name, user),
          name === owner ? ['from mx1', 'from mx2', 'from mx3'] : [],
          `${user} of ${owner} at ${name}`,
        );
    }
  });

  test('whose node is away get their mail from the queue when it is back, once', async () => {
    const owner = await site.ownerOf('ann');
    const [taker = ''] = [...site.nodes.keys()].filter((name) => name !== owner);
    await site.node(owner).server.kill('SIGKILL');
    for (let nth = 0; nth < 5; nth += 1)
      assert.equal(await sendMail(site.node(taker), ['ann'], `while away ${nth}`), 250);
    const waits = "select count(*) from postern.recipient where destination = 'target:mailbox' and state in (0, 1, 2)";
    assert.equal(await site.sql(waits), '5');
    await site.again(owner);
    await untilTrue('all has arrived', async () => (await everywhere('ann')).length === 8, 30_000);
    await untilTrue('the queue is empty', async () => (await site.sql(waits)) === '0', 30_000);
    const subjects = await site.subjects(owner, 'ann');
    assert.deepEqual(
      subjects.filter((one) => one.startsWith('while away')),
      [0, 1, 2, 3, 4].map((nth) => `while away ${nth}`),
    );
    assert.equal(subjects.length, 8);
  });

  test('get each message once, though their node is killed while it delivers', async () => {
    const owner = await site.ownerOf('bob');
    const takers = [...site.nodes.keys()].filter((name) => name !== owner);
    const count = 60;
    const accepted = new Set<string>();
    let nth = 0;
    const client = async (): Promise<void> => {
      for (; nth < count;) {
        const subject = `killed ${(nth += 1)}`;
        const code = await sendMail(site.node(takers[nth % takers.length] ?? ''), ['bob'], subject);
        if (code === 250) accepted.add(subject);
        // The kill falls into the middle, with several deliveries under way.
        if (nth === count / 2) void site.node(owner).server.kill('SIGKILL');
      }
    };
    await Promise.all(Array.from({ length: 8 }, client));
    await site.again(owner);
    const arrived = async () => (await everywhere('bob')).filter((one) => one.startsWith('killed'));
    const waits = "select count(*) from postern.recipient where destination = 'target:mailbox' and state in (0, 1, 2)";
    await untilTrue('the queue is empty', async () => (await site.sql(waits)) === '0', 60_000);
    const subjects = await arrived();
    assert.equal(new Set(subjects).size, subjects.length, 'none twice');
    for (const subject of accepted) assert.ok(subjects.includes(subject), `${subject} is lost`);
    assert.ok(accepted.size > count / 2);
  });

  test('that have no node any more, as the database has forgotten it, get the one where their messages lie', async () => {
    const owner = await site.ownerOf('cat');
    await site.sql(
      `delete from postern.mailbox_owner where username = 'cat@example.org';
       update postern.revision set value = value - 1 where name = 'mailbox-owners'`,
    );
    await untilTrue('it has one', async () => (await site.ownerOf('cat')) === owner);
  });
});
