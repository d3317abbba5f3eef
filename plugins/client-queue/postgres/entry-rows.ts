import { z } from 'zod';
import type { SharedDatabase, SqlRow, SqlTransaction } from '../../../core/contracts/cluster.js';
import {
  type Attempt,
  type EntryState,
  type NewEntry,
  type RecordedReply,
} from '../../../core/contracts/queue-entry.js';
import type { Log } from '../../../core/log/log.js';
import { applyChange, type EntryChange, type ChangeDeps, keptAttempts } from '../queue/change.js';
import { damageHolds } from '../queue/hold-reasons.js';
import { encodeEnvelope, StoredAttempt, StoredNotice, StoredPending } from '../queue/envelope.js';
import { recipientOutcomes } from '../queue/ledger.js';
import type { QueueOutcome } from '../../../core/contracts/relay-queue-store.js';
import { isWaiting, QueuedEntry, type RecipientRecord, statesByWeight } from '../queue/queued-entry.js';
import { deleteOldBodies, oldTable } from './bodies.js';

/** States are numbers in the table: the state of an entry is the least of its recipients. */
export const numberOf = (state: EntryState): number => statesByWeight.indexOf(state);
const stateOf = (number: number): EntryState => statesByWeight[number] ?? 'held';

/** Where a waiting recipient waits. */
export const lanes = {
  /** New, or asked for by an operator: in the order of turns. */
  new: 0,
  /** By its due time. */
  retry: 1,
  /** A process died with it: one at a time for each node. */
  suspect: 2,
  /** Accepted, while other targets of the message may still fail. It cannot be claimed. */
  unreleased: 3,
} as const;

/** Characters that PostgreSQL refuses in texts. What was accepted is kept as JSON, which writes them as escapes. */
export function searchable(text: string): string {
  return Buffer.from(text.replaceAll('\0', '')).toString();
}

interface EntryRow extends SqlRow {
  readonly uid: string;
  readonly revision: number;
  readonly size: string;
  readonly queued_at: string;
  readonly expires_at: string;
  readonly warn_at: string | null;
  readonly last_attempt: string | null;
  readonly finished_at: string | null;
  readonly hold: string | null;
  readonly hold_until: string | null;
  readonly discard_at: string | null;
  readonly counts_from: string | null;
  readonly pending: string | null;
  readonly crashes: number;
  readonly notices: string | null;
  readonly notice_count: number;
  readonly history: string;
  readonly envelope: string;
  readonly body: string;
  readonly body_table: number | null;
}

interface RecipientRow extends SqlRow {
  readonly uid: string;
  readonly idx: number;
  readonly state: number;
  readonly lane: number;
  readonly due: string;
  readonly attempts: number;
  readonly manual: boolean;
  readonly token: string | null;
  readonly last_token: string | null;
  readonly session: string | null;
  readonly claimed_at: string | null;
  readonly code: number | null;
  readonly status: string | null;
  readonly reply: string | null;
  readonly host: string | null;
  readonly replied_at: string | null;
  readonly reason: string;
}

/** What the tables know of a lease beyond what the entry has. */
export interface LeaseRow {
  readonly index: number;
  readonly lane: number;
  readonly token: number | null;
  /** Of the lease that was taken away; below 0, of the lease whose outcome was written. */
  readonly lastToken: number | null;
  readonly session: string | null;
  readonly claimedAt: number | null;
}

/** An entry as it is in the tables. */
export interface StoredRows {
  readonly entry: QueuedEntry;
  readonly history: readonly Attempt[];
  readonly leases: readonly LeaseRow[];
  /** Key of its body, when that lies in the table of old ones. */
  readonly oldBody: string | undefined;
}

const History = z.array(StoredAttempt);
const Notices = z.array(StoredNotice);
const Envelope = z.object({
  sender: z.string().nullable(),
  addresses: z.array(z.tuple([z.string(), z.string()])),
  rest: z.string(),
});

interface TableEnvelope {
  readonly sender: string | null;
  readonly recipients: readonly { readonly address: string; readonly destination: string }[];
  /** As `encodeEnvelope` returned it. */
  readonly rest: string;
}

/** The parts of `envelopeText`. */
export function decodedEnvelope(text: string): TableEnvelope {
  const { sender, addresses, rest } = Envelope.parse(JSON.parse(text));
  return { sender, recipients: addresses.map(([address, destination]) => ({ address, destination })), rest };
}

/** What was accepted, as text that PostgreSQL takes. */
export function envelopeText(entry: NewEntry): string {
  const addresses = entry.recipients.map(({ address, destination }) => [address, destination]);
  return JSON.stringify({ sender: entry.sender, addresses, rest: encodeEnvelope(entry) });
}

/** Rows by their key, in the order of the first of each. */
export function groupedBy<K, R>(rows: readonly R[], keyOf: (row: R) => K): Map<K, R[]> {
  const groups = new Map<K, R[]>();
  for (const row of rows) {
    const group = groups.get(keyOf(row));
    if (group === undefined) groups.set(keyOf(row), [row]);
    else group.push(row);
  }
  return groups;
}

const timeOf = (text: string | null): number | null => (text === null ? null : Number(text));

/**
 * The entries of these uids, in the order of their uids; missing ones are left out.
 *
 * @param lock so that no other transaction changes them before this one ends
 */
export async function readEntries(
  sql: SqlTransaction,
  uids: readonly string[],
  lock: 'lock' | 'read',
): Promise<readonly StoredRows[]> {
  if (uids.length === 0) return [];
  const entries = await sql.query<EntryRow>(
    `select uid, revision, size, queued_at, expires_at, warn_at, last_attempt, finished_at, hold, hold_until, discard_at,
       counts_from, pending, crashes, notices, notice_count, history, envelope, body, body_table
     from postern.entry where uid = any($1::text[]) order by uid ${lock === 'lock' ? 'for update' : ''}`,
    [uids],
  );
  const recipients = await sql.query<RecipientRow>(
    `select uid, idx, state, lane, due, attempts, manual, token, last_token, session, claimed_at, code, status, reply,
       host, replied_at, reason
     from postern.recipient where uid = any($1::text[]) order by uid, idx ${lock === 'lock' ? 'for update' : ''}`,
    [uids],
  );
  const byUid = groupedBy(recipients, ({ uid }) => uid);
  const envelopes = await envelopesOf(sql, entries);
  return entries.flatMap((row) => {
    const envelope = envelopes.get(row.uid);
    return envelope === undefined ? [] : [storedOf(row, envelope, byUid.get(row.uid) ?? [])];
  });
}

/** By uid. Of an envelope that cannot be read, what columns have of it. */
async function envelopesOf(
  sql: SqlTransaction,
  entries: readonly EntryRow[],
): Promise<ReadonlyMap<string, TableEnvelope>> {
  const envelopes = new Map<string, TableEnvelope>();
  const unreadable: string[] = [];
  for (const { uid, envelope } of entries) {
    try {
      envelopes.set(uid, decodedEnvelope(envelope));
    } catch {
      unreadable.push(uid);
    }
  }
  if (unreadable.length === 0) return envelopes;
  const rows = await sql.query<{ uid: string; sender: string | null; address: string; destination: string }>(
    `select e.uid, e.sender, r.address, r.destination from postern.entry e join postern.recipient r on r.uid = e.uid
     where e.uid = any($1::text[]) order by r.uid, r.idx`,
    [unreadable],
  );
  const byUid = groupedBy(rows, ({ uid }) => uid);
  for (const uid of unreadable) {
    const recipients = byUid.get(uid) ?? [];
    envelopes.set(uid, { sender: recipients[0]?.sender ?? null, recipients, rest: '' });
  }
  return envelopes;
}

/** As it is in the tables: what of its envelope cannot be read is left out. Good enough to look at, not to send. */
class TableEntry extends QueuedEntry {
  override get accepted(): NewEntry {
    try {
      return super.accepted;
    } catch {
      const { uid, sender, recipients, size, queuedAt, expiresAt, warnAt } = this;
      return {
        uid,
        sender,
        size,
        queuedAt,
        expiresAt,
        warnAt,
        recipients: recipients.map(({ address, destination }) => ({ address, destination })),
        protocol: 'smtp',
        route: null,
        eightBit: false,
        smtputf8: false,
        subject: '',
        internetMessageId: null,
        nextAttempt: queuedAt,
        source: { listener: '', user: null, remoteAddress: '' },
      };
    }
  }
}

function storedOf(
  row: EntryRow,
  { sender, recipients: accepted, rest }: TableEnvelope,
  recipients: readonly RecipientRow[],
): StoredRows {
  const due = new Map(recipients.map((one) => [one.idx, Number(one.due)]));
  const entry = new TableEntry({
    uid: row.uid,
    sender,
    size: Number(row.size),
    traceOffset: 0,
    queuedAt: Number(row.queued_at),
    expiresAt: Number(row.expires_at),
    warnAt: timeOf(row.warn_at),
    hold: row.hold,
    recipients: accepted.map((one, index) => ({ ...one, due: due.get(index) ?? 0 })),
    envelope: rest,
  });
  entry.revision = row.revision;
  entry.lastAttempt = timeOf(row.last_attempt);
  entry.finishedAt = timeOf(row.finished_at);
  for (const one of recipients) fillRecipient(entry.recipients[one.idx], one);
  const { edit } = entry;
  edit.notices = row.notices === null ? [] : Notices.parse(JSON.parse(row.notices));
  edit.noticeCount = row.notice_count;
  edit.pending = row.pending === null ? null : StoredPending.parse(JSON.parse(row.pending));
  edit.holdUntil = timeOf(row.hold_until);
  edit.discardAt = timeOf(row.discard_at);
  edit.countsFrom = timeOf(row.counts_from);
  edit.crashes = row.crashes;
  const leases = recipients.map((one): LeaseRow => ({
    index: one.idx,
    lane: one.lane,
    token: timeOf(one.token),
    lastToken: timeOf(one.last_token),
    session: one.session,
    claimedAt: timeOf(one.claimed_at),
  }));
  const active = groupedBy(
    leases.filter(({ index, token }) => token !== null && entry.recipients[index]?.state === 'active'),
    ({ token }) => token ?? 0,
  );
  edit.leases = Array.from(active, ([token, those]) => ({
    token,
    at: those[0]?.claimedAt ?? entry.queuedAt,
    recipients: those.map(({ index }) => index),
  }));
  const oldBody = row.body_table === oldTable ? row.body : undefined;
  return {
    entry,
    get history() {
      return History.parse(JSON.parse(row.history));
    },
    leases,
    oldBody,
  };
}

function fillRecipient(recipient: RecipientRecord | undefined, row: RecipientRow): void {
  if (recipient === undefined) return;
  recipient.state = stateOf(row.state);
  recipient.attempts = row.attempts;
  recipient.manual = row.manual;
  recipient.reason = row.reason;
  if (row.code === null) return;
  const { code, status, reply, host, replied_at: at } = row;
  recipient.reply = { code, status: status ?? '', text: reply ?? '', host, at: Number(at) };
}

/** When age may change the entry next; null for never. */
function agesAt(entry: QueuedEntry): number | null {
  const { holdUntil, discardAt } = entry.details;
  const expires = entry.recipients.some(isWaiting) ? entry.expiresAt : null;
  const warns = entry.recipients.some(isWaiting) ? entry.warnAt : null;
  const times = [holdUntil, discardAt, expires, warns].filter((at) => at !== null);
  return times.length === 0 || entry.finishedAt !== null ? null : Math.min(...times);
}

/** A lane for a recipient that waits; others keep theirs. */
function laneOf({ state, manual, due, entry }: RecipientRecord, now: number): number {
  if (entry.details.crashes > 0) return lanes.suspect;
  return due <= now && (state === 'queued' || manual) ? lanes.new : lanes.retry;
}

/** Entries that a transaction has locked, and what it changes of them. */
export class LockedEntries {
  readonly #rows: ReadonlyMap<string, StoredRows>;
  readonly #deps: ChangeDeps;
  readonly #changed = new Map<string, Changed>();
  readonly #outcomes: QueueOutcome[] = [];

  private constructor(rows: readonly StoredRows[], deps: ChangeDeps) {
    this.#rows = new Map(rows.map((one) => [one.entry.uid, one]));
    this.#deps = deps;
  }

  static async lock(sql: SqlTransaction, uids: readonly string[], deps: ChangeDeps): Promise<LockedEntries> {
    return new LockedEntries(await readEntries(sql, uids, 'lock'), deps);
  }

  get(uid: string): StoredRows | undefined {
    return this.#rows.get(uid);
  }

  values(): Iterable<StoredRows> {
    return this.#rows.values();
  }

  /** What is to be told when the transaction has committed. */
  get outcomes(): readonly QueueOutcome[] {
    return this.#outcomes;
  }

  /** Recipients that wait now, by what was changed. */
  *waiting(): Generator<RecipientRecord> {
    for (const { rows, indexes } of this.#changed.values()) {
      for (const one of rows.entry.recipients) if (indexes.has(one.index) && isWaiting(one)) yield one;
    }
  }

  /** Entries that were open and are so no more. */
  get ended(): number {
    let count = 0;
    for (const { rows, wasOpen } of this.#changed.values()) if (wasOpen && rows.entry.finishedAt !== null) count += 1;
    return count;
  }

  /** @param lost the lease that ends was lost, so that its outcome may still come */
  change(rows: StoredRows, change: EntryChange, now: number, lost = false): void {
    const { entry } = rows;
    const changed = this.#changed.get(entry.uid) ?? {
      rows,
      wasOpen: entry.finishedAt === null,
      indexes: new Set<number>(),
      lost: new Set<number>(),
      settled: new Map<number, number>(),
      attempts: [],
    };
    this.#changed.set(entry.uid, changed);
    this.#outcomes.push(...recipientOutcomes(entry, change, now));
    applyChange(entry, change, this.#deps);
    for (const { index } of change.recipients ?? []) {
      changed.indexes.add(index);
      if (!lost && change.ended !== undefined) changed.settled.set(index, change.ended);
    }
    // All that wait go to another lane, or come back from it.
    if (change.crashes !== undefined)
      for (const one of entry.recipients) if (isWaiting(one)) changed.indexes.add(one.index);
    if (lost && change.ended !== undefined) changed.lost.add(change.ended);
    if (change.attempt !== undefined) changed.attempts.push(change.attempt);
  }

  async write(sql: SqlTransaction, now: number): Promise<void> {
    const changed = [...this.#changed.values()];
    if (changed.length === 0) return;
    await writeEntries(sql, changed);
    await writeRecipients(sql, changed, now);
    const done = changed.filter(({ rows: { entry } }) => entry.isDone);
    await deleteOldBodies(
      sql,
      done.flatMap(({ rows: { oldBody } }) => oldBody ?? []),
    );
  }
}

interface Changed {
  readonly rows: StoredRows;
  readonly wasOpen: boolean;
  /** Recipients to write. */
  readonly indexes: Set<number>;
  /** Tokens of leases that were lost, not settled. */
  readonly lost: Set<number>;
  /** Tokens of outcomes by recipient. */
  readonly settled: Map<number, number>;
  readonly attempts: NonNullable<EntryChange['attempt']>[];
}

async function writeEntries(sql: SqlTransaction, changed: readonly Changed[]): Promise<void> {
  const columns = changed.map(({ rows, attempts }) => {
    const { entry } = rows;
    const { notices, noticeCount, pending, holdUntil, discardAt, crashes, countsFrom } = entry.details;
    return [
      entry.uid,
      entry.revision,
      entry.expiresAt,
      entry.warnAt,
      entry.lastAttempt,
      entry.finishedAt,
      entry.hold === null ? null : searchable(entry.hold),
      holdUntil,
      discardAt,
      countsFrom,
      pending === null ? null : JSON.stringify(pending),
      crashes,
      notices.length === 0 ? null : JSON.stringify(notices),
      noticeCount,
      attempts.length === 0 ? null : JSON.stringify([...rows.history, ...attempts].slice(-keptAttempts)),
      agesAt(entry),
      entry.isDone,
    ];
  });
  await sql.query(
    `update postern.entry e set revision = u.revision, expires_at = u.expires_at, warn_at = u.warn_at,
       last_attempt = u.last_attempt, finished_at = u.finished_at, hold = u.hold, hold_until = u.hold_until,
       discard_at = u.discard_at, counts_from = u.counts_from, pending = u.pending, crashes = u.crashes,
       notices = u.notices, notice_count = u.notice_count, history = coalesce(u.history, e.history), ages_at = u.ages_at,
       body_table = case when u.done then null else e.body_table end
     from unnest($1::text[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
       $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::smallint[], $13::text[], $14::int[], $15::text[],
       $16::bigint[], $17::boolean[])
       as u(uid, revision, expires_at, warn_at, last_attempt, finished_at, hold, hold_until, discard_at, counts_from,
         pending, crashes, notices, notice_count, history, ages_at, done)
     where e.uid = u.uid`,
    turned(columns),
  );
}

async function writeRecipients(sql: SqlTransaction, changed: readonly Changed[], now: number): Promise<void> {
  const columns = changed.flatMap((one) => recipientColumns(one, now));
  if (columns.length === 0) return;
  await sql.query(
    `update postern.recipient r set state = u.state, lane = u.lane, turn = u.turn, due = u.due, attempts = u.attempts,
       manual = u.manual, token = null, last_token = u.last_token, session = u.session, claimed_at = null,
       code = u.code, status = u.status, reply = u.reply, host = u.host, replied_at = u.replied_at, reason = u.reason
     from unnest($1::text[], $2::smallint[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::smallint[],
       $8::boolean[], $9::bigint[], $10::text[], $11::smallint[], $12::text[], $13::text[], $14::text[], $15::bigint[],
       $16::text[])
       as u(uid, idx, state, lane, turn, due, attempts, manual, last_token, session, code, status, reply, host,
         replied_at, reason)
     where r.uid = u.uid and r.idx = u.idx`,
    turned(columns),
  );
}

function recipientColumns({ rows, indexes, lost, settled }: Changed, now: number): readonly unknown[][] {
  const { entry, leases } = rows;
  return leases.flatMap(({ index, lane, token, lastToken, session }) => {
    const recipient = entry.recipients[index];
    if (recipient === undefined || recipient.state === 'active' || !indexes.has(index)) return [];
    const isUnreleased = lane === lanes.unreleased;
    const lastTokenOf = (): number | null => {
      const settledBy = settled.get(index);
      if (settledBy !== undefined) return -settledBy;
      if (token !== null) return lost.has(token) ? token : null;
      return isWaiting(recipient) ? lastToken : null;
    };
    return [
      [
        entry.uid,
        index,
        numberOf(recipient.state),
        isUnreleased ? lane : laneOf(recipient, now),
        Math.floor(now),
        Math.floor(recipient.due),
        recipient.attempts,
        recipient.manual,
        lastTokenOf(),
        isUnreleased ? session : null,
        ...replyColumns(recipient.reply),
        searchable(recipient.reason),
      ],
    ];
  });
}

export function replyColumns(reply: RecordedReply | null): readonly unknown[] {
  if (reply === null) return [null, null, null, null, null];
  const { code, status, text, host, at } = reply;
  return [code, searchable(status), searchable(text), host === null ? null : searchable(host), at];
}

/** Rows to columns, as `unnest` takes them; times are whole milliseconds. */
export function turned(rows: readonly (readonly unknown[])[]): unknown[][] {
  const [first = []] = rows;
  const plain = (value: unknown): unknown => (typeof value === 'number' ? Math.round(value) : value);
  return first.map((_, column) => rows.map((row) => plain(row[column])));
}

export interface Unreadable {
  readonly uid: string;
  readonly tokens?: readonly number[];
  readonly error: unknown;
}

/** Holds an entry that cannot be read, without reading it: its waiting recipients, those of dead nodes, and these leases. */
export async function holdUnreadable(
  database: SharedDatabase,
  log: Log,
  { uid, tokens = [], error }: Unreadable,
): Promise<void> {
  await database.transaction('settle', async (sql) => {
    await sql.query(
      `update postern.entry set hold = $2, hold_until = null, ages_at = null, revision = revision + 1 where uid = $1`,
      [uid, damageHolds.unreadable],
    );
    await sql.query(
      `update postern.recipient set state = ${numberOf('held')}, token = null, last_token = null, session = null,
         claimed_at = null
       where uid = $1 and (state between 1 and 2 and lane <> ${lanes.unreleased} or state = 0
         and (token = any($2::bigint[]) or session in (select key from postern.session where dead)))`,
      [uid, tokens],
    );
  });
  log.error({ uid, err: error }, 'a message in the queue cannot be read, and is held');
}
