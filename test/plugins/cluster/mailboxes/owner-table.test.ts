import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { OwnerTable } from '../../../../plugins/cluster/mailboxes/owner-table.js';
import { openCopies } from '../../../../plugins/cluster/shared/node-copies.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { emptyTables, fillTables, forgettable, nodeOf } from '../cluster-fixture.js';

describe('the table of owners', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });

  async function opened(t: Ending, name: string): Promise<OwnerTable> {
    const cluster = nodeOf(server, { node: name });
    await cluster.join();
    t.after(() => cluster.leave());
    const copy = (await openCopies(await temporaryFolder(t))).owners;
    return new OwnerTable({ cluster, copy, addresses: () => ({}), changes: () => Promise.resolve() });
  }

  for (const later of [['bob'], ['bob', 'cid', 'dan']]) {
    test(`gives an owner to ${later.length} more after the database has forgotten one`, async (t) => {
      await server.psql(emptyTables, 'template');
      const [one, other] = [await opened(t, 'a'), await opened(t, 'b')];
      await one.assign('zoe');
      const forget = await forgettable(server);
      await one.assign('ann');
      await other.pull();
      assert.deepEqual([other.find('ann')?.node, other.find('zoe')?.node], ['a', 'a']);
      await forget();
      for (const name of later) assert.equal((await other.assign(name)).node, 'b');
      await one.pull();
      for (const table of [one, other]) assert.deepEqual([table.ownedBy('a'), table.ownedBy('b')], [['zoe'], later]);
    });
  }
});
