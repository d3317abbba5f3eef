import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { before, describe, test } from 'node:test';
import type { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import { accept, claimOne, entryOf } from '../../../kit/relay-queue/harness.js';
import { settlement } from '../../../kit/relay-queue/entries.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { fillTables } from '../../cluster/cluster-fixture.js';
import { postgresQueues } from './postgres-fixture.js';

describe('awkward mail in PostgreSQL', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });
  const open = postgresQueues(() => server);

  test('NUL and halves of surrogate pairs come back as they were', async (t) => {
    const harness = await open(t);
    const odd = 'a\0b\ud800c\udc00';
    const entry = await accept(harness, { subject: odd, sender: `${odd}@home.example`, internetMessageId: odd });
    const lease = await claimOne(harness);
    assert.deepEqual([lease.entry.subject, lease.entry.sender], [entry.subject, entry.sender]);
    await harness.queue.settle(lease, settlement(lease, 'deferred', { at: harness.clock.now(), text: odd }));
    const { recipients, history } = await entryOf(harness.queue, entry.uid);
    assert.deepEqual([recipients[0]?.lastReply?.code, history[0]?.reply?.text], [451, odd]);
  });

  test('a thousand recipients and 50 MB are given back octet by octet', async (t) => {
    const harness = await open(t);
    const to = Array.from({ length: 1000 }, (_, nth) => `r${nth}@one.example`);
    const head = 'Subject: large\r\n\r\n';
    const body = 'all work and no play\r\n'.repeat(2_400_000);
    const { uid } = await accept(harness, { to }, head + body);
    const lease = await claimOne(harness);
    assert.equal(lease.recipients.length, 1000);
    const text = await buffer(await harness.queue.open(uid));
    assert.ok(text.subarray(text.indexOf(head) + head.length).equals(Buffer.from(body)));
    await harness.queue.settle(lease, settlement(lease, 'delivered', { at: harness.clock.now() }));
    const named = 'select count(*) from postern.entry where body_table is not null';
    assert.equal(await server.psql(named, 'template'), '0');
  });

  test('mail is claimed beside 300,000 messages of a destination without room', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    await server.psql(
      `insert into postern.recipient (uid, idx, queued_at, address, destination, state, lane, turn, due)
       select 'bulk' || n, 0, 1, 'a@closed.example', 'closed.example', 2, 0, n, 1 from generate_series(1, 300000) n;
       analyze postern.recipient`,
      'template',
    );
    await harness.current?.();
    for (const name of ['a', 'b', 'c']) await accept(harness, { uid: name, to: ['x@open.example'] });
    const room = (destination: string): number => (destination === 'closed.example' ? 0 : 10);
    const leases = await queue.claim({ now: clock.now(), limit: 100, leaseMs: 60_000, room });
    assert.deepEqual(leases.map(({ uid }) => uid).toSorted(), ['a', 'b', 'c']);
    await server.psql('truncate postern.recipient', 'template');
  });

  test('the ids of a large queue are read page by page', async (t) => {
    const harness = await open(t);
    await server.psql(
      `insert into postern.entry (uid, birth, subject, size, queued_at, expires_at, envelope, body)
       select 'a' || n, '', '', 1, 1, 1, '', '' from generate_series(1, 25000) n`,
      'template',
    );
    const uids = await (harness.queue as PostgresRelayQueue).uids();
    assert.deepEqual([uids.length, new Set(uids).size], [25_000, 25_000]);
    await server.psql('truncate postern.entry', 'template');
  });

  test('of finished entries the newest 100,000 are kept', async (t) => {
    const { queue, clock } = await open(t);
    await server.psql(
      `insert into postern.entry (uid, birth, subject, size, queued_at, expires_at, finished_at, envelope, body)
       select n, '', '', 1, 1, 1, ${clock.now()} - n, '', '' from generate_series(1, 102500) n;
       insert into postern.recipient (uid, idx, queued_at, address, destination, state, lane, turn, due)
       select uid, 0, 1, 'a@one.example', 'one.example', 7, 0, 0, 0 from postern.entry;
       analyze postern.entry, postern.recipient`,
      'template',
    );
    await queue.housekeep(clock.now());
    const left = 'select count(*), max(e.uid::int) from postern.entry e join postern.recipient r using (uid)';
    assert.equal(await server.psql(left, 'template'), '100000|100000');
    await server.psql('truncate postern.entry, postern.recipient', 'template');
  });
});
