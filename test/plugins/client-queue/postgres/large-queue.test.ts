import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import pg from 'pg';
import type { SharedDatabase, SqlPurpose, SqlRow } from '../../../../core/contracts/cluster.js';
import type { EntryFilter, ListOptions } from '../../../../core/contracts/relay-queue.js';
import { entryStates } from '../../../../core/contracts/queue-entry.js';
import type { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import { recipientTestOf } from '../../../../plugins/client-queue/queue/entry-list.js';
import { Tally } from '../../../../plugins/client-queue/queue/statistics.js';
import { claiming, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, type QueueHarness, type TestContext } from '../../../kit/relay-queue/harness.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { fillTables } from '../../cluster/cluster-fixture.js';
import { fillEntries } from './filled-tables.js';
import { postgresQueues } from './postgres-fixture.js';

describe('a large queue in PostgreSQL', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });
  const filled = async (t: TestContext, entries: number): Promise<QueueHarness & { queue: PostgresRelayQueue }> => {
    const harness = await postgresQueues(() => server)(t);
    const client = new pg.Client(server.url('template'));
    await client.connect();
    await fillEntries(client, entries, harness.clock.now());
    await client.end();
    await harness.current?.();
    return harness as QueueHarness & { queue: PostgresRelayQueue };
  };

  test('pages by next attempt follow each other in both orders, what waits for none comes last', async (t) => {
    const { queue } = await filled(t, 20_000);
    const filter: EntryFilter = { sender: 'batch@home.example' };
    for (const order of ['asc', 'desc'] as const) {
      const options: ListOptions = { filter: {}, limit: 5000, sort: 'nextAttempt', order };
      const seen: (readonly [key: number, uid: string])[] = [];
      let cursor: string | undefined;
      let back: string | null = null;
      do {
        const page = await queue.list({ ...options, ...(cursor !== undefined && { cursor }) });
        seen.push(...page.items.map(({ nextAttempt, uid }) => [nextAttempt ?? Infinity, uid] as const));
        cursor = page.nextCursor ?? undefined;
        back = page.prevCursor;
      } while (cursor !== undefined);
      const sorted = seen.toSorted(([a, one], [b, other]) => (a === b ? (one < other ? -1 : 1) : a - b));
      assert.equal(new Set(seen.map(([, uid]) => uid)).size, 20_000);
      assert.deepEqual(seen, order === 'asc' ? sorted : sorted.toReversed());
      const before = await queue.list({ ...options, cursor: back ?? '' });
      assert.deepEqual(
        before.items.map(({ uid }) => uid),
        seen.slice(10_000, 15_000).map(([, uid]) => uid),
      );
    }
    const some = await queue.list({ filter, limit: 300, sort: 'nextAttempt', order: 'asc' });
    assert.equal(some.items.length, 200);
    assert.equal(some.total, 200);
  });

  test('a total beyond 10,000 is a lower bound, a count is exact', async (t) => {
    const { queue } = await filled(t, 20_000);
    assert.deepEqual((await queue.list({ filter: {}, limit: 10 })).total, { least: 10_000 });
    assert.equal((await queue.list({ filter: { destination: 'large.example' }, limit: 10 })).total, 6000);
    assert.equal(await queue.count({}), 20_000);
  });

  test('statistics are the same as those that are counted entry by entry', async (t) => {
    const harness = await filled(t, 300);
    const { queue, clock } = harness;
    await accept(harness, { sender: null, to: ['a@one.example', 'b@two.example', 'c@two.example'] });
    await accept(harness, { sender: 'Ann@Home.example', to: ['a@one.example', 'b@two.example'] });
    await accept(harness, { sender: 'ann@home.example', to: ['a@three.example'], hold: 'wait' });
    clock.advance(1);
    const leases = await queue.claim(claiming(clock.now(), { limit: 1000 }));
    for (const [nth, lease] of leases.entries()) {
      const fate = (['delivered', 'deferred', 'bounced'] as const)[nth % 4];
      if (fate !== undefined) await queue.settle(lease, settlement(lease, fate, { at: clock.now() + nth }));
    }
    await accept(harness, { sender: 'young@home.example', to: ['y@one.example', 'z@large.example'] });
    await harness.current?.();
    const wholes = await queue.wholes(await queue.uids());
    const filters: readonly (EntryFilter | undefined)[] = [
      undefined,
      {},
      { state: entryStates },
      { state: ['deferred'] },
      { destination: 'large.example' },
      { domain: 'two.example' },
      { recipient: 'b@two.example', state: entryStates },
      { reason: '451 4.7.1 reason number 9' },
      { sender: '@home.example' },
    ];
    for (const filter of filters) {
      const now = clock.now();
      const { total, items } = await queue.list({ filter: filter ?? { state: entryStates }, limit: 1000 });
      assert.equal(total, items.length);
      const matching = new Set(items.map(({ uid }) => uid));
      const tally = new Tally(now);
      const chooses = filter && recipientTestOf(filter);
      for (const { entry } of wholes) if (matching.has(entry.uid)) tally.add(entry, chooses);
      const expected = await tally.result(0);
      const { destinationCount, senderCount, damaged, ...found } = await queue.statistics(now, filter);
      // Replies of one moment are as new as each other.
      const withoutReplies = ({ byDestination, byReason, ...rest }: typeof expected) => ({
        ...rest,
        byDestination: byDestination.map(({ lastReply, ...row }) => ({ ...row, at: lastReply?.at })),
        byReason: byReason.map(({ example, ...row }) => ({ ...row, at: example.at })),
      });
      assert.deepEqual(withoutReplies(found), withoutReplies(expected), JSON.stringify(filter));
      assert.deepEqual(
        [destinationCount, senderCount, damaged],
        [expected.byDestination.length, expected.bySender.length, 0],
      );
    }
  });

  test('of a large queue one node counts for all, and says when', async (t) => {
    const harness = await filled(t, 6000);
    const { queue, clock } = harness;
    const at = clock.now();
    await queue.housekeep(at);
    clock.advance(30);
    const { queue: other } = (await harness.another?.()) ?? assert.fail();
    await harness.current?.();
    for (const one of [queue, other]) {
      const found = await one.statistics(clock.now());
      assert.deepEqual([found.at, found.open, found.byDestination[0]?.total], [at, 6000, 1800]);
    }
    clock.advance(3600);
    assert.equal((await other.statistics(clock.now())).at, clock.now());
  });

  test('all of many destinations are found and sent to, though the database takes too long for all of them at once', async (t) => {
    const slow = (database: SharedDatabase): SharedDatabase => ({
      transaction: (purpose, work) => database.transaction(purpose, work),
      query: async <R extends SqlRow>(purpose: SqlPurpose, text: string, values?: readonly unknown[]) => {
        const rows = await database.query<R>(purpose, text, values);
        if (rows.length <= 1000 && !text.includes('count(*)')) return rows;
        throw Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' });
      },
    });
    const harness = await postgresQueues(() => server)(t, {}, slow);
    const { queue, clock } = harness;
    await accept(harness, { uid: 'e0', to: ['a@elsewhere.example'] });
    await (queue as PostgresRelayQueue).offer();
    const lanes = ['new', 'retry'];
    await server.psql(
      `insert into postern.entry (uid, birth, subject, size, queued_at, expires_at, envelope, body, body_table)
       select 'e' || n, birth, subject, size, queued_at, expires_at, envelope, body, body_table
       from postern.entry, generate_series(1, 14000) n where uid = 'e0';
       insert into postern.recipient (uid, idx, address, destination, state, lane, turn, due, queued_at)
       select 'e' || n, 0, 'a@one.example', (array['${lanes.join("','")}'])[n % 2 + 1] || n, 2 - n % 2, n % 2, 1, 1, 1
       from generate_series(1, 14000) n`,
      'template',
    );
    await (queue as PostgresRelayQueue).catchUp(true);
    // The last ones by name.
    const left = new Set(['new9998', 'retry9999']);
    for (let claims = 0; claims < 20 && left.size > 0; claims += 1) {
      const room = (destination: string): number => (left.has(destination) ? 1 : 0);
      for (const { destination } of await queue.claim(claiming(clock.now(), { room }))) left.delete(destination);
    }
    assert.deepEqual([...left], []);
    await server.psql('truncate postern.entry, postern.recipient', 'template');
  });

  test('an operation on a filter changes each entry once, if as many match as were expected', async (t) => {
    const { queue, clock } = await filled(t, 3000);
    const filter: EntryFilter = { destination: 'large.example' };
    const retry = { operation: 'retry', at: clock.now() + 1000 } as const;
    await assert.rejects(queue.mutate({ filter, expect: 899 }, retry, clock.now()), /900 entries match now, not 899/);
    const { requested, changed, results } = await queue.mutate({ filter, expect: 900 }, retry, clock.now());
    assert.deepEqual([requested, changed, new Set(results.map(({ uid }) => uid)).size], [900, 900, 900]);
    const { items } = await queue.list({ filter, limit: 1000 });
    assert.equal(items.filter(({ recipients }) => recipients.some((one) => one.nextAttempt === retry.at)).length, 900);
    const [first] = items;
    assert.equal((await queue.find(first?.uid ?? ''))?.history.length, 3);
  });
});
