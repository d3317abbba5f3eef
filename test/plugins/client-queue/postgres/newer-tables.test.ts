import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { relayQueueContract } from '../../../kit/relay-queue/contract.js';
import { claiming } from '../../../kit/relay-queue/entries.js';
import { accept } from '../../../kit/relay-queue/harness.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { untilTrue } from '../../../support/until.js';
import { fillTables } from '../../cluster/cluster-fixture.js';
import { postgresQueues } from './postgres-fixture.js';

/** What the first step of a change adds: servers that know nothing of it go on. */
const expansion = `
insert into postern.schema (version, least_reader, script_hash) values (2, 1, 'of a newer server');
alter table postern.entry add column later text, add column later_count int not null default 0;
alter table postern.recipient add column later bigint not null default 0;
alter table postern.session add column later jsonb;
create index entry_later on postern.entry (later);
create table postern.later (name text primary key);
`;

describe('a server beside tables of a newer one', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
    await server.psql(expansion, 'template');
  });
  relayQueueContract(
    test,
    postgresQueues(() => server),
  );

  test('sends and takes nothing more when they need a newer one', async (t) => {
    const harness = await postgresQueues(() => server)(t);
    const { queue, clock } = harness;
    await accept(harness);
    assert.equal(queue.refusal?.(), undefined);
    await server.psql('update postern.schema set least_reader = 2 where version = 2', 'template');
    t.after(async () => void (await server.psql('update postern.schema set least_reader = 1', 'template')));
    await untilTrue('mail for others is refused', () => queue.refusal?.() !== undefined);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
  });
});
