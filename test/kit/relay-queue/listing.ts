import assert from 'node:assert/strict';
import type { EntryFilter } from '../../../core/contracts/relay-queue.js';
import { claiming, settlement } from './entries.js';
import { accept, entryOf, type OpenQueueHarness, type TestRegistrar, type QueueHarness } from './harness.js';

/** Entries of all sorts; their names say what they are. */
async function variety(harness: QueueHarness): Promise<ReadonlyMap<string, string>> {
  const { queue, clock } = harness;
  const uids = new Map<string, string>();
  const add = async (name: string, wishes: Parameters<typeof accept>[1]): Promise<void> => {
    uids.set(name, (await accept(harness, wishes)).uid);
  };
  await add('old', { to: ['A.Person@one.example'], subject: 'Quarterly "report" \\ 100 %' });
  await add('bounce', { sender: null, to: ['b@two.example'], internetMessageId: '<Unusual-ID@x.example>' });
  const at = clock.now();
  for (const lease of await queue.claim(claiming(at))) {
    const text = lease.destination === 'one.example' ? 'try again in 30 s' : 'mailbox of <b@two.example> is full';
    await queue.settle(lease, settlement(lease, 'deferred', { at, text }));
  }
  clock.advance(7200);
  await add('young', { sender: 'Other@Away.Example', to: ['c@one.example', 'd@three.example'] });
  await add('held', { to: ['e@two.example'], hold: 'wait' });
  await add('gone', { to: ['f@two.example'] });
  await queue.mutate({ uids: [uids.get('gone') ?? ''] }, { operation: 'delete' }, clock.now());
  return uids;
}

const filters: readonly (readonly [what: string, filter: EntryFilter, expected: string])[] = [
  ['nothing: what is open', {}, 'bounce held old young'],
  ['states', { state: ['held', 'deleted'] }, 'gone held'],
  ['all states', { state: ['queued', 'deferred', 'held', 'deleted', 'active'] }, 'bounce gone held old young'],
  ['a part of the subject', { q: 'QUARTERLY' }, 'old'],
  ['a part with quotes and slashes', { q: '"report" \\' }, 'old'],
  ['a part of a recipient', { q: 'a.person@' }, 'old'],
  ['a part of the sender', { q: 'other@away' }, 'young'],
  ['a part of the Message-ID', { q: 'unusual-id' }, 'bounce'],
  ['a part of the last reply', { q: 'is FULL' }, 'bounce'],
  ['the code of the last reply', { q: '451 4.0' }, 'bounce old'],
  ['what stands nowhere', { q: 'submission' }, ''],
  ['a sender', { sender: 'other@away.example' }, 'young'],
  ['a domain of senders', { sender: '@away.example' }, 'young'],
  ['the null sender', { sender: '<>' }, 'bounce'],
  ['a recipient', { recipient: 'a.person@one.example' }, 'old'],
  ['a domain of recipients', { recipient: '@three.example' }, 'young'],
  ['no part of a domain', { recipient: '@example' }, ''],
  ['a destination', { domain: 'one.example' }, 'old young'],
  ['an age', { olderThan: 7200 }, 'bounce old'],
  ['a youth', { youngerThan: 7200 }, 'held young'],
  ['attempts', { minAttempts: 1 }, 'bounce old'],
  ['several together', { domain: 'one.example', minAttempts: 1, q: 'again' }, 'old'],
];

/** How mail is found. */
export function listing(test: TestRegistrar, open: OpenQueueHarness): void {
  test('a filter finds what it describes, and counts it', async (t) => {
    const harness = await open(t);
    const uids = await variety(harness);
    const names = new Map([...uids].map(([name, uid]) => [uid, name]));
    for (const [what, filter, expected] of filters) {
      const { items, total } = await harness.queue.list({ filter, limit: 50 });
      const found = items.map(({ uid }) => names.get(uid) ?? uid);
      assert.equal(found.sort((a, b) => (a < b ? -1 : 1)).join(' '), expected, what);
      assert.equal(total, items.length, what);
      assert.equal(await harness.queue.count(filter), total, what);
    }
  });

  test('reasons that differ only in addresses and numbers are one, and find their entries', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    await accept(harness, { to: ['a@one.example'] });
    await accept(harness, { to: ['b@two.example'] });
    const at = clock.now();
    for (const lease of await queue.claim(claiming(at))) {
      const [first] = lease.recipients;
      const text = `<${first?.address ?? ''}> greylisted for ${lease.token} s`;
      await queue.settle(lease, settlement(lease, 'deferred', { at, text }));
    }
    await harness.current?.();
    const { byReason } = await queue.statistics(at);
    assert.deepEqual(
      byReason.map(({ count }) => count),
      [2],
    );
    const [reason] = byReason;
    assert.equal(reason?.example.code, 451);
    assert.equal(await queue.count({ reason: reason.reason }), 2);
  });

  test('statistics count entries by state, and open recipients by destination and age', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const uids = await variety(harness);
    const now = clock.now();
    await harness.current?.();
    const found = await queue.statistics(now);
    const { queued, deferred, held, deleted, delivered } = found.byState;
    assert.deepEqual(
      { queued, deferred, held, deleted, delivered },
      { queued: 1, deferred: 2, held: 1, deleted: 1, delivered: 0 },
    );
    const of = (name: string) => found.byDestination.find(({ destination }) => destination === `${name}.example`);
    const [one, two, three] = [of('one'), of('two'), of('three')];
    assert.deepEqual([one?.total, two?.total, three?.total], [2, 2, 1]);
    assert.deepEqual(
      found.byDestination.map(({ total }) => total),
      [2, 2, 1],
    );
    assert.equal(one?.ages.length, found.ageLimits.length + 1);
    assert.deepEqual([one?.ages[0], one?.ages[found.ageLimits.indexOf(160)]], [1, 1]);
    assert.equal(one?.oldest, now - 7_200_000);
    assert.equal(one?.lastReply?.text, 'try again in 30 s');
    assert.deepEqual([found.open, found.oldest, found.quarantined], [4, now - 7_200_000, 0]);
    assert.equal(found.bytes, 4 * (await entryOf(queue, uids.get('old') ?? '')).size);
  });

  test('statistics with a filter are of the entries and recipients that match', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    await accept(harness, { to: ['a@one.example', 'b@two.example'] });
    await accept(harness, { to: ['c@two.example'] });
    await harness.current?.();
    const of = async (filter?: { readonly domain: string }) => {
      const { byDestination, bySender, open: entries } = await queue.statistics(clock.now(), filter);
      const senders = bySender.map(({ count, messages }) => [count, messages]);
      return [byDestination.map(({ destination, total }) => [destination, total]), senders, entries];
    };
    assert.deepEqual(await of(), [
      [
        ['two.example', 2],
        ['one.example', 1],
      ],
      [[3, 2]],
      2,
    ]);
    assert.deepEqual(await of({ domain: 'one.example' }), [[['one.example', 1]], [[1, 1]], 1]);
  });

  test('pages follow each other in both directions', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    for (let n = 0; n < 7; n++) {
      await accept(harness, { subject: `no. ${n}` });
      clock.advance(1);
    }
    const options = { filter: {}, limit: 3, sort: 'queuedAt', order: 'asc' } as const;
    const shown = (items: readonly { readonly subject: string }[]) =>
      items.map(({ subject }) => subject.slice(4)).join('');
    const first = await queue.list(options);
    assert.deepEqual([shown(first.items), first.total, first.prevCursor], ['012', 7, null]);
    const second = await queue.list({ ...options, cursor: first.nextCursor ?? '' });
    assert.equal(shown(second.items), '345');
    const third = await queue.list({ ...options, cursor: second.nextCursor ?? '' });
    assert.deepEqual([shown(third.items), third.nextCursor], ['6', null]);
    assert.equal(shown((await queue.list({ ...options, cursor: third.prevCursor ?? '' })).items), '345');
    assert.equal(shown((await queue.list({ ...options, page: 2 })).items), '345');
  });
}
