import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import type { Cluster } from '../../../core/contracts/cluster.js';
import { type Entry, type NewEntry, type Notice } from '../../../core/contracts/queue-entry.js';
import type {
  EntryFilter,
  EntryPage,
  ListOptions,
  Mutation,
  MutationPreview,
  MutationResult,
  MutationRun,
  QueueStatistics,
  Selector,
} from '../../../core/contracts/relay-queue.js';
import type {
  ClaimOptions,
  Lease,
  OpenedRelayQueue,
  PreparedEntry,
  QueueBounds,
  QueueOutcome,
  Settlement,
} from '../../../core/contracts/relay-queue-store.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import { pluralize } from '../../../core/text/format.js';
import { draftOf } from '../queue/change.js';
import { ClockWatch } from '../queue/clock-watch.js';
import { summaryOf } from '../queue/entry-list.js';
import { damageHolds } from '../queue/hold-reasons.js';
import { ageEntry } from '../queue/housekeeping.js';
import { OutcomeListeners } from '../queue/ledger.js';
import { changesTo, type MovableQueue, type MovedEntry, type WholeEntry } from '../queue/moving.js';
import { versionOf } from '../queue/queued-entry.js';
import { DatabaseAcceptance, dropEntries, isBusy } from './acceptance.js';
import { withoutBadRows } from './batches.js';
import { BodyReader, type StorableMessage } from './bodies.js';
import { BodyRing, type RingLimits, defaultRing } from './body-ring.js';
import { Claims } from './claims.js';
import { holdUnreadable, LockedEntries, readEntries, type StoredRows } from './entry-rows.js';
import { EntryMutations } from './entry-mutations.js';
import { destinationsWithMail, EntrySearch, tookTooLong } from './entry-search.js';
import { damagedText, EntryStatistics, maxCountedAnew } from './entry-statistics.js';
import type { OutageLog } from './outage-log.js';
import type { QueueMeter } from './queue-meter.js';
import { changeDeps, Settlements } from './settlements.js';
import { Turns } from './turns.js';

/** Entries of one transaction. */
const together = 250;
const scanMs = 30_000;
/** Older ones are forgotten, though it may be before their time. */
const maxFinished = 100_000;

export interface PostgresQueueInput {
  readonly cluster: Cluster;
  /** Closed with the queue. */
  readonly outages: OutageLog;
  readonly log: Log;
  readonly bounds: QueueBounds;
  /** A message waits so long for a database that is away. Milliseconds. */
  readonly maxWaitMs: number;
  /** Random integer below `limit`. */
  readonly random: (limit: number) => number;
  readonly meter?: QueueMeter;
  /** Limits of the tables of bodies, but for the usual ones. */
  readonly ring?: RingLimits;
}

/** The relay queue in the database that several nodes share. */
export class PostgresRelayQueue implements OpenedRelayQueue, MovableQueue {
  readonly #input: PostgresQueueInput;
  readonly #claims: Claims;
  readonly #settlements: Settlements;
  readonly #acceptance: DatabaseAcceptance;
  readonly #search: EntrySearch;
  readonly #statistics: EntryStatistics;
  readonly #mutations: EntryMutations;
  readonly #bodies: BodyReader;
  readonly #ring: BodyRing;
  readonly #watch: ClockWatch;
  readonly #outcomes = new OutcomeListeners();
  readonly #undo: (() => void)[] = [];
  #bounds: QueueBounds;
  #size = 0;
  #damaged = 0;
  #scannedAt = -Infinity;
  #fault: string | undefined;
  #closed = false;
  #isOffering = false;

  constructor(input: PostgresQueueInput) {
    const { cluster } = input;
    this.#input = input;
    this.#bounds = input.bounds;
    this.#claims = new Claims(input);
    const committed = (entries: LockedEntries): void => this.#committed(entries);
    this.#settlements = new Settlements({ ...input, claims: this.#claims, committed });
    this.#acceptance = new DatabaseAcceptance({
      ...input,
      maxEntries: () => this.#bounds.maxEntries,
      size: () => this.#size,
      turns: new Turns(),
      released: (entry, body, content) => {
        if (content !== undefined) this.#bodies.remember(body, content);
        this.#released(entry);
      },
      counted: (change) => (this.#size += change),
    });
    this.#search = new EntrySearch(cluster.database, () => cluster.clock.now());
    this.#statistics = new EntryStatistics(cluster);
    this.#mutations = new EntryMutations({ database: cluster.database, search: this.#search, committed });
    this.#bodies = new BodyReader(cluster.database);
    this.#ring = new BodyRing(cluster.database, input.log, input.ring ?? defaultRing);
    this.#watch = new ClockWatch(cluster.clock);
    this.#undo.push(
      cluster.onRing('due', (names) => {
        if (names === null) this.#scannedAt = -Infinity;
        for (const name of names ?? []) this.#claims.scheduled(name, cluster.clock.now());
      }),
      // What is due may be claimed again.
      cluster.onDraining(() => this.#claims.signal.scheduled(cluster.clock.now())),
    );
  }

  get size(): number {
    return this.#size;
  }

  #released(entry: NewEntry): void {
    this.#claims.release(entry);
    // A claim would offer it to the others.
    if (this.#input.cluster.draining && !this.#isOffering) void this.#offerSoon();
  }

  async #offerSoon(): Promise<void> {
    this.#isOffering = true;
    // What comes in the same turn of the event loop goes together.
    await setImmediate();
    this.#isOffering = false;
    // While the database is away, `look` tries again.
    await this.offer().catch(() => undefined);
  }

  /** Tells what a transaction has changed. */
  #committed(entries: LockedEntries): void {
    const { cluster } = this.#input;
    this.#size -= entries.ended;
    const rung = new Set<string>();
    for (const { destination, due, entry } of entries.waiting()) {
      this.#claims.scheduled(destination, due, entry.details.crashes > 0);
      if (due <= cluster.clock.now()) rung.add(destination);
    }
    if (rung.size > 0) cluster.ring('due', [...rung]);
    this.#outcomes.emit(entries.outcomes);
  }

  async prepare(entry: NewEntry, message: SpooledMessage): Promise<PreparedEntry> {
    if (this.#closed) throw problem('unavailable', 'The queue is closing.');
    return this.#acceptance.prepare(entry, message);
  }

  async claim(options: ClaimOptions): Promise<readonly Lease[]> {
    if (this.#closed || this.#input.cluster.draining) return [];
    return this.#claims.claim(options);
  }

  async settle(lease: Lease, settlement: Settlement): Promise<void> {
    const place = this.#claims.places.get(lease.uid);
    await this.#settlements.settle(lease.token, lease.uid, settlement);
    if (place !== undefined) this.#bodies.forget(place);
  }

  nextDue(): number | null {
    return this.#input.cluster.draining ? this.#claims.signal.say(null) : this.#claims.nextDue();
  }

  onDue(listener: () => void): () => void {
    return this.#claims.signal.listen(listener);
  }

  onOutcome(listener: (outcome: QueueOutcome) => void): () => void {
    return this.#outcomes.add(listener);
  }

  open(uid: string): Promise<Readable> {
    return this.#bodies.open(uid);
  }

  bytes(uid: string): Promise<Buffer | undefined> {
    return this.#bodies.bytes(uid, this.#claims.places.get(uid));
  }

  async find(uid: string): Promise<Entry | undefined> {
    const [rows] = await this.#read([uid]);
    return rows === undefined ? undefined : entryOf(rows);
  }

  #read(uids: readonly string[]): Promise<readonly StoredRows[]> {
    return this.#input.cluster.database.transaction('pages', (sql) => readEntries(sql, uids, 'read'));
  }

  list(options: ListOptions): Promise<EntryPage> {
    return this.#search.list(options);
  }

  count(filter: EntryFilter): Promise<number> {
    return this.#search.count(filter);
  }

  /** Of a large queue, those that one node counts for all. */
  statistics(now: number, filter?: EntryFilter): Promise<QueueStatistics> {
    if (filter === undefined && this.#size > maxCountedAnew) return this.#statistics.shared(now);
    return this.#statistics.of(now, filter);
  }

  async mutate(selector: Selector, mutation: Mutation, now: number, run?: MutationRun): Promise<MutationResult> {
    if (this.#closed) throw problem('unavailable', 'The queue is closing.');
    return this.#mutations.mutate(selector, mutation, now, run);
  }

  preview(selector: Selector, mutation: Mutation, now: number): Promise<MutationPreview> {
    return this.#mutations.preview(selector, mutation, now);
  }

  async notices(limit: number): Promise<readonly { readonly entry: Entry; readonly notice: Notice }[]> {
    const { database } = this.#input.cluster;
    const found = await database.query<{ uid: string; notices: string }>(
      'pages',
      'select uid, notices from postern.entry where notices is not null order by notice_turn nulls first, uid limit $1',
      [Math.max(1, limit)],
    );
    let count = 0;
    const uids: string[] = [];
    for (const { uid, notices } of found) {
      if (count >= limit) break;
      count += (JSON.parse(notices) as unknown[]).length;
      uids.push(uid);
    }
    if (uids.length === 0) return [];
    // One that fails does not block the others.
    const text = `update postern.entry set notice_turn = t.turn
      from (select nextval('postern.notice_turn') as turn) t where uid = any($1::text[])`;
    await database.query('pages', text, [uids]);
    const entries = await withoutBadRows<string, Entry | undefined>(
      uids,
      async (some) => (await this.#read(some)).map(entryOf),
      (uid, error) => {
        this.#input.log.error({ uid, err: error }, 'notices of a message in the queue cannot be read');
        return Promise.resolve(undefined);
      },
    );
    return entries.flatMap((entry) => entry?.notices.map((notice) => ({ entry, notice })) ?? []);
  }

  async noticed(uid: string, noticeIds: readonly string[]): Promise<void> {
    await this.#change([uid], (locked, now) => {
      const rows = locked.get(uid);
      if (rows === undefined || !rows.entry.details.notices.some(({ id }) => noticeIds.includes(id))) return;
      const notices = rows.entry.details.notices
        .filter(({ id }) => !noticeIds.includes(id))
        .map((notice) => ({ ...notice, recipients: [...notice.recipients] }));
      locked.change(rows, { ...draftOf(rows.entry), notices }, now);
    });
  }

  /** Changes entries in one transaction. */
  async #change(uids: readonly string[], change: (locked: LockedEntries, now: number) => void): Promise<void> {
    const { database, clock } = this.#input.cluster;
    const now = clock.now();
    const entries = await database.transaction('settle', async (sql) => {
      const locked = await LockedEntries.lock(sql, uids.toSorted(), changeDeps);
      change(locked, now);
      await locked.write(sql, now);
      return locked;
    });
    this.#committed(entries);
  }

  /** The same, at any time: while the database is away, it says so in `complaint`. Never rejects. */
  async look(): Promise<void> {
    try {
      await this.catchUp();
      this.#fault = undefined;
      this.#acceptance.reached();
    } catch (error) {
      if (this.#fault === undefined)
        this.#input.log.warn({ err: error }, 'the queue in the database cannot be looked at');
      this.#fault = 'The database of the queue does not answer: nothing is sent, and mail for others is not accepted.';
    }
  }

  /** What others have put in or left, and what this node does not know. Called at the start and at intervals. */
  async catchUp(scans = this.#input.cluster.clock.monotonic() - this.#scannedAt >= scanMs): Promise<void> {
    if (this.#closed) return;
    const { cluster } = this.#input;
    await this.#settlements.offer();
    await this.#acceptance.settleDoubts();
    // Until then, and no longer than others wait for a silent session, its leases are not taken.
    if (!this.#settlements.hasEarlier) await cluster.endEarlierSessions();
    const overdue = [...this.#claims.held.values()].filter(({ deadline }) => deadline <= cluster.clock.monotonic());
    await this.#settlements.abandon(overdue, this.#settlements.spread);
    await this.offer();
    while (await this.#settlements.takeFromTheDead());
    if (!scans) return;
    this.#scannedAt = cluster.clock.monotonic();
    await this.#settlements.giveBackUnknown();
    await this.#scan();
  }

  /** Finds every destination where mail waits, whichever node accepted it. */
  async #scan(): Promise<void> {
    const { database } = this.#input.cluster;
    for await (const found of destinationsWithMail(database)) {
      for (const { destination, due, suspect } of found) this.#claims.scheduled(destination, Number(due), suspect);
    }
    const counting = database.query<{ open: string; damaged: string }>(
      'settle',
      `select (select count(*) from postern.entry where finished_at is null) as open,
         (${damagedText('$1')}) as damaged`,
      [Object.values(damageHolds)],
    );
    // When there are too many for the time, the last count serves.
    const [row] = await counting.catch((error: unknown) => {
      if (tookTooLong(error)) return [];
      throw error;
    });
    if (row === undefined) return;
    this.#size = Number(row.open);
    this.#damaged = Number(row.damaged);
  }

  uids(): Promise<readonly string[]> {
    return this.#search.uids();
  }

  async wholes(uids: readonly string[]): Promise<readonly WholeEntry[]> {
    const found = await this.#read(uids);
    return found.map((rows) => ({ entry: rows.entry, history: rows.history, isBusy: isBusy(rows) }));
  }

  async adopt(moved: MovedEntry): Promise<void> {
    const { accepted, isDone, size } = moved.entry;
    const message = isDone ? undefined : movedMessage(moved.content, size);
    const prepared = await this.#acceptance.prepare(accepted, message, changesTo(moved));
    await prepared.commit();
    prepared.release();
  }

  /** Tells the others of it. */
  async offer(): Promise<void> {
    const destinations = await this.#claims.offer();
    if (destinations.size > 0) this.#input.cluster.ring('due', [...destinations]);
  }

  drop(wholes: readonly WholeEntry[]): Promise<readonly string[]> {
    return this.#input.cluster.database.transaction('settle', (sql) => dropEntries(sql, wholes));
  }

  async housekeep(now: number): Promise<void> {
    if (this.#closed) return;
    await this.catchUp();
    this.#watch.look();
    await this.#age(now);
    await this.#forgetFinished(this.#watch.isSteady ? now - this.#bounds.keepFinishedMs : 0);
    await this.#ring.turn();
    if (this.#size > maxCountedAnew) await this.#statistics.renew(now);
  }

  async #age(now: number): Promise<void> {
    const { isSteady: steady, hasJumped: jumped } = this.#watch;
    const { keepDeadLetterMs = 0 } = this.#bounds;
    const { cluster, log } = this.#input;
    const { database } = cluster;
    for (let from: readonly [at: string, uid: string] = ['-1', '']; ;) {
      const found: readonly { uid: string; ages_at: string }[] = await database.query(
        'settle',
        `select uid, ages_at from postern.entry where ages_at <= $1 and (ages_at, uid) > ($2::bigint, $3::text)
         order by ages_at, uid limit $4`,
        [Math.floor(now), ...from, together],
      );
      const last = found.at(-1);
      if (last === undefined) return;
      from = [last.ages_at, last.uid];
      const age = async (uids: readonly string[]): Promise<readonly never[]> => {
        await this.#change(uids, (locked) => {
          for (const rows of locked.values()) {
            const change = ageEntry(rows.entry, { now, steady, jumped, keepDeadLetterMs, aheadOf: () => 0 });
            if (change !== undefined) locked.change(rows, change, now);
          }
        });
        return [];
      };
      const uids = found.map(({ uid }) => uid);
      await withoutBadRows(uids, age, (uid, error) => holdUnreadable(database, log, { uid, error }));
    }
  }

  async #forgetFinished(before: number): Promise<void> {
    const { database } = this.#input.cluster;
    const [oldest] = await database.query<{ finished_at: string }>(
      'settle',
      `select finished_at from postern.entry where finished_at is not null
       order by finished_at desc offset $1 limit 1`,
      [maxFinished - 1],
    );
    const text = `with gone as (
        delete from postern.entry where uid in (
          select uid from postern.entry where finished_at < $1 and notices is null order by finished_at limit 1000)
        returning uid)
      delete from postern.recipient r using gone where r.uid = gone.uid returning gone.uid`;
    const from = Math.max(before, Number(oldest?.finished_at ?? 0));
    while ((await database.query('settle', text, [Math.floor(from)])).length > 0);
  }

  bound(bounds: QueueBounds): void {
    this.#bounds = bounds;
  }

  refusal(): string | undefined {
    const isOutdated = this.#input.cluster.outdated !== undefined;
    return isOutdated || (this.#fault !== undefined && this.#acceptance.isVain)
      ? 'The queue cannot be written now; try again later.'
      : undefined;
  }

  complaint(): string | undefined {
    const { size } = this.#input.outages.outcomes;
    const waiting = size > 0 && `What came of ${pluralize(size, 'attempt')} waits on the disk of this server.`;
    const faults = [this.#fault, waiting].filter((one) => typeof one === 'string');
    if (faults.length > 0) return faults.join(' ');
    if (this.#damaged === 0) return undefined;
    const messages = pluralize(this.#damaged, 'message is', 'messages are');
    return `${messages} held because of damage, or because a server ended while sending. See /client/queue/list?state=held`;
  }

  figures(): Readonly<Record<'quarantined' | 'damaged', number>> {
    return { quarantined: 0, damaged: this.#damaged };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const undo of this.#undo) undo();
    await this.#settlements.idle();
    await this.#settlements.offer().catch(() => undefined);
    await this.#settlements.abandon([...this.#claims.held.values()], (now) => now).catch(() => undefined);
    await this.#acceptance.idle();
    await this.#input.outages.close();
  }
}

/** A message of another queue: its trace header fields come first. */
const movedMessage = (content: Buffer, size: number): StorableMessage => ({
  size,
  traceOffset: 0,
  open: (offset = 0) => Readable.from([content.subarray(offset)]),
  memory: (offset = 0) => content.subarray(offset),
});

function entryOf({ entry, history }: StoredRows): Entry {
  const { notices, pending, discardAt } = entry.details;
  return {
    ...summaryOf(entry),
    accepted: entry.accepted,
    history,
    notices,
    pendingOperation: pending?.operation ?? null,
    discardAt,
    version: versionOf(entry),
    hasMessage: !entry.isDone,
  };
}
