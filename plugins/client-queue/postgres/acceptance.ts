import { buffer } from 'node:stream/consumers';
import { LRUCache } from 'lru-cache';
import { setTimeout as pause } from 'node:timers/promises';
import { type Cluster, type SharedDatabase, sqlState, type SqlTransaction } from '../../../core/contracts/cluster.js';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { PreparedEntry } from '../../../core/contracts/relay-queue-store.js';
import { normalReason } from '../queue/queued-entry.js';
import type { EntryChange } from '../queue/change.js';
import type { WholeEntry } from '../queue/moving.js';
import { Batches, refusesContent } from './batches.js';
import {
  deleteOldBodies,
  insertBodies,
  lostBodies,
  type StorableMessage,
  oldTable,
  partBytes,
  presentTable,
  type StoredParts,
  storeParts,
} from './bodies.js';
import {
  envelopeText,
  groupedBy,
  lanes,
  LockedEntries,
  numberOf,
  readEntries,
  replyColumns,
  searchable,
  type StoredRows,
  turned,
} from './entry-rows.js';
import type { OutageLog } from './outage-log.js';
import type { QueueMeter } from './queue-meter.js';
import { changeDeps } from './settlements.js';
import type { Turns } from './turns.js';

const together = 64;
const bytesTogether = 4 * 1024 * 1024;
/** Messages that wait for a database that is away; further ones are refused at once. */
const maxWaiting = 500;
const maxWaitingBytes = 64 * 1024 * 1024;
const firstPauseMs = 100;
const maxPauseMs = 2000;
/** An index takes about 2700 bytes. */
const maxDestination = 2000;
const diskFull = '53100';
const lockTimeout = '55P03';

interface AcceptanceInput {
  readonly cluster: Cluster;
  /** Has what was refused, though it may be committed. */
  readonly outages: OutageLog;
  readonly log: Log;
  readonly maxEntries: () => number;
  readonly size: () => number;
  /** A message waits so long for a database that is away. Milliseconds. */
  readonly maxWaitMs: number;
  readonly turns: Turns;
  /** Its recipients may be claimed; the lane is written with the next claim. `content`: the whole message, when it is small. */
  readonly released: (entry: NewEntry, body: string, content: Buffer | undefined) => void;
  readonly counted: (change: number) => void;
  readonly meter?: QueueMeter | undefined;
}

interface Accepting {
  readonly entry: NewEntry;
  /** Undefined when it is needed no more. */
  readonly message: StorableMessage | undefined;
  /** The whole message, when it is small. */
  readonly content: Buffer | undefined;
  /** When it is large. */
  readonly stored: StoredParts | undefined;
  /** Tells this entry from another one with its uid, and is the key of its body. */
  readonly birth: string;
  /** Of an entry that comes from another queue: what makes it what it was there. */
  readonly changes: readonly EntryChange[];
}

/** A commit without an answer. */
interface Doubt {
  readonly uid: string;
  readonly birth: string;
  /** Of its record on the disk; undefined when the disk has not taken it. */
  number: number | undefined;
}

interface Waiting extends Accepting {
  /** Since when, by `clock.monotonic()`. */
  readonly since: number;
}

const away = 'The queue cannot be written now; try again later.';
const full = 'The queue has no room now; try again later.';

/** `lost`: its parts are gone, and nothing was written. */
type Accepted = 'new' | 'taken' | 'refused' | 'lost';

/** Takes mail in: 250 may be sent when the transaction with the entry has committed. */
export class DatabaseAcceptance {
  readonly #input: AcceptanceInput;
  readonly #preparing = new Set<string>();
  readonly #recent = new LRUCache<string, true>({ max: 10_000 });
  readonly #batches: Batches<Waiting, Accepted>;
  #isAway = false;
  /** A message has waited in vain since the database was away. */
  #isVain = false;
  /** Of commits without an answer: not to be delivered when they turn out to have happened. */
  readonly #doubtful = new Set<Doubt>();

  constructor(input: AcceptanceInput) {
    this.#input = input;
    for (const [number, doubt] of input.outages.doubts) this.#doubtful.add({ ...doubt, number });
    this.#batches = new Batches<Waiting, Accepted>({
      concurrent: 2,
      maxItems: () => together,
      maxWeight: bytesTogether,
      weightOf: ({ content }) => content?.length ?? 0,
      run: (items) => this.#write(items),
      done: (items, begun) => input.meter?.committed('accept', items, begun),
    });
  }

  /** Others need not wait as long. */
  get isVain(): boolean {
    return this.#isVain;
  }

  /** The database has answered. */
  reached(): void {
    this.#isVain = false;
  }

  async prepare(
    entry: NewEntry,
    message: StorableMessage | undefined,
    changes: readonly EntryChange[] = [],
  ): Promise<PreparedEntry> {
    const { uid } = entry;
    if (entry.recipients.length === 0) throw problem('invalid', 'An entry has one recipient at least.');
    if (entry.recipients.some(({ destination }) => Buffer.byteLength(destination) > maxDestination)) {
      throw problem('invalid', 'The name of a destination is too long.');
    }
    if (this.#input.size() + this.#preparing.size >= this.#input.maxEntries()) {
      throw problem('unavailable', 'The queue is full; try again later.');
    }
    if (this.#isAway && (this.#batches.size >= maxWaiting || this.#batches.weight >= maxWaitingBytes)) {
      throw problem('unavailable', away);
    }
    // Another node may know it: then the commit says so.
    if (this.#recent.has(uid)) throw problem('conflict', 'There is such an entry already.');
    if (this.#preparing.has(uid))
      throw problem('unavailable', 'It is being handed in at this moment; try again later.');
    this.#preparing.add(uid);
    try {
      return this.#prepared(await this.#accepting(entry, message, changes));
    } catch (error) {
      this.#preparing.delete(uid);
      throw error;
    }
  }

  async #accepting(
    given: NewEntry,
    message: StorableMessage | undefined,
    changes: readonly EntryChange[],
  ): Promise<Accepting> {
    const birth = uniqueId();
    if (message === undefined) {
      return { entry: given, message, birth, changes, content: undefined, stored: undefined };
    }
    const { size, traceOffset } = message;
    const accepting = { entry: { ...given, size: size - traceOffset }, message, birth, changes };
    if (accepting.entry.size > partBytes) {
      return { ...accepting, content: undefined, stored: await this.#store(birth, message) };
    }
    const content = message.memory?.(traceOffset) ?? (await buffer(message.open(traceOffset)));
    return { ...accepting, content, stored: undefined };
  }

  idle(): Promise<void> {
    return this.#batches.idle();
  }

  #prepared(accepting: Accepting): PreparedEntry {
    const { entry, birth } = accepting;
    let state: 'prepared' | 'committed' | 'ended' = 'prepared';
    return {
      commit: async () => {
        if (state !== 'prepared') throw problem('conflict', 'It was committed or taken back before.');
        state = 'ended';
        const accepted = await this.#accept(accepting).finally(() => this.#preparing.delete(entry.uid));
        if (accepted === 'refused') throw problem('unavailable', 'The queue cannot take this message.');
        if (accepted === 'taken') throw problem('conflict', 'There is such an entry already.');
        state = 'committed';
        this.#input.counted(1);
      },
      release: () => {
        if (state !== 'committed') return;
        // Not before: until then it may be taken back.
        this.#recent.set(entry.uid, true);
        this.#input.released(entry, birth, accepting.content);
      },
      abort: async () => {
        const wasCommitted = state === 'committed';
        this.#recent.delete(entry.uid);
        state = 'ended';
        this.#preparing.delete(entry.uid);
        if (wasCommitted) await this.#withdraw(entry.uid, birth);
      },
    };
  }

  async #accept(accepting: Accepting): Promise<Accepted> {
    const { entry, birth, message } = accepting;
    const since = this.#input.cluster.clock.monotonic();
    let { stored } = accepting;
    for (;;) {
      const accepted = await this.#batches.add({ ...accepting, stored, since });
      if (accepted !== 'lost' || message === undefined) return accepted;
      stored = await this.#store(birth, message).catch(async (cause: unknown) => {
        // An earlier commit, without an answer, may have happened.
        await this.#doubt([{ uid: entry.uid, birth }]);
        throw isProblem(cause) ? cause : problem('unavailable', { detail: away, cause });
      });
    }
  }

  async #store(birth: string, message: StorableMessage): Promise<StoredParts> {
    try {
      return await storeParts(this.#input.cluster.database, birth, message);
    } catch (error) {
      throw sqlState(error) === diskFull ? problem('storage-full', { detail: full, cause: error }) : error;
    }
  }

  /** Never rejects: what cannot be withdrawn now is withdrawn later. */
  async #withdraw(uid: string, birth: string): Promise<void> {
    try {
      const gone = await this.#input.cluster.database.transaction('accept', (sql) => withdraw(sql, uid, birth));
      if (gone) this.#input.counted(-1);
      else this.#input.log.error({ uid }, 'possible duplicate: a message that was taken back is on its way');
    } catch {
      await this.#doubt([{ uid, birth }]);
    }
  }

  /** They are on the disk when it resolves, or in memory alone. Never rejects. */
  async #doubt(entries: readonly Pick<Doubt, 'uid' | 'birth'>[]): Promise<void> {
    const { outages, log } = this.#input;
    const keep = async ({ uid, birth }: Pick<Doubt, 'uid' | 'birth'>): Promise<void> => {
      const doubt: Doubt = { uid, birth, number: undefined };
      this.#doubtful.add(doubt);
      try {
        doubt.number = await outages.keep('doubts', { uid, birth });
        // Settled meanwhile.
        if (!this.#doubtful.has(doubt)) await outages.done([doubt.number]);
      } catch (error) {
        const sentence = 'that a message was refused cannot be put on the disk while the database is away';
        log.error({ uid, err: error }, sentence);
      }
    };
    await Promise.all(entries.map(keep));
  }

  /** Withdraws what was refused, though it turned out to be committed, by an earlier process as well. */
  async settleDoubts(): Promise<void> {
    if (this.#doubtful.size === 0) return;
    const { cluster, outages, log } = this.#input;
    // The newest first: it may have taken over the entry of an older one.
    const doubts = [...this.#doubtful].toReversed();
    const found = await cluster.database.query<{ uid: string }>(
      'accept',
      'select uid from postern.entry where uid = any($1::text[])',
      [doubts.map(({ uid }) => uid)],
    );
    const isThere = new Set(found.map(({ uid }) => uid));
    let isUndecided = false;
    for (const doubt of doubts) {
      const { uid, birth } = doubt;
      if (!isThere.has(uid)) {
        // One that waits is enough for a round.
        isUndecided ||= await mayAppear(cluster.database, uid);
        if (isUndecided) continue;
      }
      const gone = await cluster.database.transaction('accept', (sql) => withdraw(sql, uid, birth));
      this.#doubtful.delete(doubt);
      if (doubt.number !== undefined) await outages.done([doubt.number]);
      if (!gone) log.warn({ uid }, 'possible duplicate: a message that was refused may be on its way');
    }
  }

  /** Writes them in one transaction. While it is unknown whether it has committed, the same is written again. */
  async #write(items: readonly Waiting[]): Promise<readonly Accepted[]> {
    const { cluster, maxWaitMs } = this.#input;
    // The first one has waited the longest.
    const until = (items[0]?.since ?? 0) + maxWaitMs;
    for (let ms = firstPauseMs, isSent = false; ; ms = Math.min(ms * 2, maxPauseMs)) {
      try {
        const accepted = await this.#insert(items);
        this.#isAway = false;
        return accepted;
      } catch (error) {
        if (refusesContent(error)) return this.#writeEach(items, error);
        const isFull = sqlState(error) === diskFull;
        this.#isAway = !isFull;
        isSent ||= !isProblem(error) && !isFull;
        if (isFull || cluster.clock.monotonic() + ms >= until) {
          // A client that gets 451 sends it again: what has committed nevertheless is withdrawn.
          if (isSent) await this.#doubt(items.map(({ entry: { uid }, birth }) => ({ uid, birth })));
          if (isFull) throw problem('storage-full', { detail: full, cause: error });
          this.#isVain = true;
          throw problem('unavailable', { detail: away, cause: error });
        }
        await pause(ms, undefined, { ref: false });
      }
    }
  }

  /** One of them is refused for its content: it alone. */
  async #writeEach(items: readonly Waiting[], error: unknown): Promise<readonly Accepted[]> {
    const [first] = items;
    if (items.length === 1 && first !== undefined) {
      this.#input.log.error({ uid: first.entry.uid, err: error }, 'the database refuses the text of a message');
      throw problem('unavailable', { detail: 'The queue cannot take this message.', cause: error });
    }
    const middle = Math.ceil(items.length / 2);
    const halves = await Promise.allSettled([this.#write(items.slice(0, middle)), this.#write(items.slice(middle))]);
    return halves.flatMap((half, index) => {
      if (half.status === 'fulfilled') return half.value;
      const refused = index === 0 ? items.slice(0, middle) : items.slice(middle);
      return refused.map((): Accepted => 'refused');
    });
  }

  async #insert(items: readonly Accepting[]): Promise<readonly Accepted[]> {
    const { cluster } = this.#input;
    const { session } = cluster;
    if (session === undefined) throw problem('unavailable', 'This node has no session in the cluster now.');
    return cluster.database.transaction('accept', async (sql) => {
      const lost = await lostBodies(sql, items);
      const whole = items.filter(({ birth }) => !lost.has(birth));
      if (whole.length === 0) return items.map(() => 'lost');
      const fresh = new Map((await insertEntries(sql, whole, session)).map((row) => [row.uid, row]));
      const births = new Map(Array.from(fresh.values(), ({ uid, birth }) => [uid, birth]));
      const taken = whole.filter(({ entry }) => !fresh.has(entry.uid));
      for (const [uid, birth] of await takeOver(sql, taken)) births.set(uid, birth);
      if (whole.some(({ entry }) => !births.has(entry.uid))) {
        throw problem('unavailable', 'The session of this node has ended.');
      }
      const written = whole.filter(({ entry }) => fresh.has(entry.uid));
      if (written.length > 0) {
        await insertRecipients(sql, written, { session, turns: this.#input.turns });
        const small = written.flatMap(({ entry: { uid }, birth: id, content }) => {
          const table = fresh.get(uid)?.body_table;
          return content === undefined || table === undefined ? [] : [{ table, id, content }];
        });
        for (const [table, bodies] of groupedBy(small, (one) => one.table)) await insertBodies(sql, table, bodies);
        await changeEntries(sql, written, cluster.clock.now());
      }
      return items.map(({ entry, birth }): Accepted => {
        if (lost.has(birth)) return 'lost';
        return births.get(entry.uid) === birth ? 'new' : 'taken';
      });
    });
  }
}

async function insertEntries(
  sql: SqlTransaction,
  items: readonly Accepting[],
  session: string,
): Promise<readonly { readonly uid: string; readonly birth: string; readonly body_table: number }[]> {
  const columns = items.map(({ entry, birth, stored }) => [
    entry.uid,
    birth,
    entry.sender === null ? null : searchable(entry.sender),
    searchable(entry.subject),
    entry.internetMessageId === null ? null : searchable(entry.internetMessageId),
    entry.size,
    entry.queuedAt,
    entry.expiresAt,
    entry.warnAt,
    entry.hold === undefined ? null : searchable(entry.hold),
    entry.discardAt ?? null,
    Math.min(entry.expiresAt, entry.warnAt ?? Infinity, entry.discardAt ?? Infinity),
    envelopeText(entry),
    stored?.table ?? null,
  ]);
  return sql.query(
    `insert into postern.entry (uid, birth, sender, subject, message_id, size, queued_at, expires_at, warn_at, hold,
       discard_at, ages_at, envelope, body, body_table)
     select u.uid, u.birth, u.sender, u.subject, u.message_id, u.size, u.queued_at, u.expires_at, u.warn_at, u.hold,
       u.discard_at, u.ages_at, u.envelope, u.birth, coalesce(u.body_table, ${presentTable})
     from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
       $8::bigint[], $9::bigint[], $10::text[], $11::bigint[], $12::bigint[], $13::text[], $14::smallint[])
       as u(uid, birth, sender, subject, message_id, size, queued_at, expires_at, warn_at, hold, discard_at, ages_at,
         envelope, body_table)
     where exists (select 1 from postern.session where key = $15 and not dead)
     on conflict (uid) do nothing returning uid, birth, body_table`,
    [...turned(columns), session],
  );
}

/**
 * Entries that are there already are of these from now on: who has put them in first, and does not know it, must not
 * take them back. Their births until now. A second statement sees what another transaction has committed meanwhile.
 */
async function takeOver(sql: SqlTransaction, items: readonly Accepting[]): Promise<ReadonlyMap<string, string>> {
  if (items.length === 0) return new Map();
  const known = await sql.query<{ uid: string; birth: string; body: string }>(
    `with known as (select uid, birth from postern.entry where uid = any($1::text[]) order by uid for update)
     update postern.entry e set birth = u.birth
     from known k join unnest($1::text[], $2::text[]) as u(uid, birth) on u.uid = k.uid
     where e.uid = k.uid returning e.uid, k.birth, e.body`,
    turned(items.map(({ entry, birth }) => [entry.uid, birth])),
  );
  // Put in by an earlier try of these, without an answer: who took them over has left the release to it.
  const own = new Set(items.map(({ birth }) => birth));
  const left = known.filter(({ birth, body }) => own.has(body) && birth !== body).map(({ uid }) => uid);
  if (left.length > 0) await sql.query(releaseText, [left]);
  return new Map(known.map(({ uid, birth }) => [uid, birth]));
}

async function insertRecipients(
  sql: SqlTransaction,
  items: readonly Accepting[],
  { session, turns }: { readonly session: string; readonly turns: Turns },
): Promise<void> {
  const columns = items.flatMap(({ entry }) => {
    const turnOf = turns.of(entry);
    return entry.recipients.map(({ address, destination, lastReply = null }, index) => {
      const turn = turnOf(destination);
      const waits = lastReply === null ? 'queued' : 'deferred';
      return [
        entry.uid,
        index,
        entry.queuedAt,
        searchable(address),
        searchable(destination),
        numberOf(entry.hold === undefined ? waits : 'held'),
        lanes.unreleased,
        turn,
        entry.nextAttempt,
        ...replyColumns(lastReply),
        lastReply === null ? '' : searchable(normalReason(lastReply)),
      ];
    });
  });
  await sql.query(
    `insert into postern.recipient (uid, idx, queued_at, address, destination, state, lane, turn, due, code, status,
       reply, host, replied_at, reason, session)
     select u.*, $16 from unnest($1::text[], $2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::smallint[],
       $7::smallint[], $8::bigint[], $9::bigint[], $10::smallint[], $11::text[], $12::text[], $13::text[], $14::bigint[],
       $15::text[]) u`,
    [...turned(columns), session],
  );
}

async function changeEntries(sql: SqlTransaction, items: readonly Accepting[], now: number): Promise<void> {
  const changed = items.filter(({ changes }) => changes.length > 0);
  if (changed.length === 0) return;
  const uids = changed.map(({ entry }) => entry.uid).sort();
  const locked = await LockedEntries.lock(sql, uids, changeDeps);
  for (const { entry, changes } of changed) {
    const rows = locked.get(entry.uid);
    if (rows !== undefined) for (const change of changes) locked.change(rows, change, now);
  }
  await locked.write(sql, now);
}

/** Whether a transaction with this entry is under way: one that waits for a standby in its COMMIT, for example. */
async function mayAppear(database: SharedDatabase, uid: string): Promise<boolean> {
  let waits = false;
  // A commit would wait for the standby as well.
  const undo = problem('internal', 'Nothing is to be written.');
  const probe = async (sql: SqlTransaction): Promise<never> => {
    await sql.query("set local lock_timeout = '200ms'");
    const text = `insert into postern.entry (uid, birth, subject, size, queued_at, expires_at, envelope, body)
      values ($1, '', '', 0, 0, 0, '', '') on conflict (uid) do nothing`;
    await sql.query(text, [uid]).catch((error: unknown) => {
      if (sqlState(error) !== lockTimeout) throw error;
      waits = true;
    });
    throw undo;
  };
  await database.transaction('accept', probe).catch((error: unknown) => {
    if (error !== undo) throw error;
  });
  return waits;
}

/** Another acceptance has answered for it meanwhile. */
const releaseText = `update postern.recipient set lane = 1, session = null where uid = any($1::text[]) and lane = 3`;

/** False when a node has begun to send it. */
async function withdraw(sql: SqlTransaction, uid: string, birth: string): Promise<boolean> {
  const [entry] = await sql.query<{ birth: string; body: string }>(
    'select birth, body from postern.entry where uid = $1 for update',
    [uid],
  );
  if (entry?.birth !== birth) {
    if (entry?.body === birth) await sql.query(releaseText, [[uid]]);
    return true;
  }
  const begun = await sql.query(
    'select 1 from postern.recipient where uid = $1 and (state not in (1, 2, 3) or attempts > 0) for update',
    [uid],
  );
  if (begun.length > 0) return false;
  await remove(sql, [uid]);
  return true;
}

/** Entries that are locked. */
async function remove(sql: SqlTransaction, uids: readonly string[]): Promise<void> {
  await sql.query('delete from postern.recipient where uid = any($1::text[])', [uids]);
  const old = await sql.query<{ body: string }>(
    `select body from postern.entry where uid = any($1::text[]) and body_table = ${oldTable}`,
    [uids],
  );
  await deleteOldBodies(
    sql,
    old.map(({ body }) => body),
  );
  await sql.query('delete from postern.entry where uid = any($1::text[])', [uids]);
}

/** Removes entries that are as they were read; the uids of the others. */
export async function dropEntries(sql: SqlTransaction, read: readonly WholeEntry[]): Promise<readonly string[]> {
  const uids = read.map(({ entry }) => entry.uid).sort();
  const found = new Map((await readEntries(sql, uids, 'lock')).map((rows) => [rows.entry.uid, rows]));
  const kept = new Set(
    read.flatMap(({ entry: { uid, revision } }) => {
      const rows = found.get(uid);
      return rows === undefined || (rows.entry.revision === revision && !isBusy(rows)) ? [] : [uid];
    }),
  );
  await remove(
    sql,
    uids.filter((uid) => !kept.has(uid)),
  );
  return [...kept];
}

/** A node sends it, or is accepting it. */
export const isBusy = ({ leases }: StoredRows): boolean =>
  leases.some(({ token, lane }) => token !== null || lane === lanes.unreleased);
