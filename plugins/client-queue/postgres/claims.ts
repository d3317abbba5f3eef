import { randomInt } from 'node:crypto';
import type { Cluster, SqlRow, SqlTransaction } from '../../../core/contracts/cluster.js';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import { decodeEnvelope } from '../queue/envelope.js';
import type { ClaimOptions, Lease } from '../../../core/contracts/relay-queue-store.js';
import { DueSignal } from '../queue/schedule.js';
import { isOfOneRow, withoutBadRows } from './batches.js';
import type { BodyPlace } from './bodies.js';
import { DestinationHints, maxEach, type Wanted } from './destination-hints.js';
import { decodedEnvelope, groupedBy, holdUnreadable, lanes, numberOf, turned, type Unreadable } from './entry-rows.js';

const queued = numberOf('queued');

const recipientLimit = 32_767;
/** Recipients that one statement releases. */
export const recipientsTogether = 1000;

/** A lease of this node, as long as it has no outcome. */
export interface HeldLease {
  readonly lease: Lease;
  readonly session: string;
  /** By `clock.monotonic()`. */
  readonly deadline: number;
  /** Tried alone. */
  readonly isSuspect: boolean;
}

interface ClaimedRow extends SqlRow {
  readonly uid: string;
  readonly idx: number;
  readonly token: string;
  readonly destination: string;
  readonly address: string;
  readonly lane: number;
  readonly turn: string;
  readonly due: string;
  readonly attempts: number;
  readonly manual: boolean;
  readonly replied_at: string | null;
  readonly status: string | null;
  readonly size: string;
  readonly queued_at: string;
  readonly expires_at: string;
  readonly last_attempt: string | null;
  readonly crashes: number;
  readonly body: string;
  readonly body_table: number | null;
  /** Only in the first row of a lease. */
  readonly envelope: string | null;
}

const claimedColumns = `r.uid, r.idx, r.token, r.destination, r.address, r.lane, r.turn, r.due, r.attempts, r.manual,
  r.replied_at, r.status, e.size, e.queued_at, e.expires_at, e.last_attempt, e.crashes, e.body, e.body_table,
  case when t.is_first then e.envelope end as envelope`;

/**
 * What was released here for a destination of which nothing else is due: it may be claimed as it is, without being put
 * where all nodes can claim it.
 */
interface Fresh {
  readonly entries: NewEntry[];
  /** When something else may be due; null for never. */
  otherDue: number | null;
}

/** A part of a claim that is such entries. */
interface Direct {
  readonly want: Wanted;
  readonly entries: readonly NewEntry[];
}

/** Gives out what is due. */
export class Claims {
  readonly hints = new DestinationHints();
  readonly signal: DueSignal;
  /** By token. */
  readonly held = new Map<number, HeldLease>();
  readonly #cluster: Cluster;
  readonly #log: Log;
  /** By uid, where the messages of leases are. */
  readonly places = new Map<string, BodyPlace>();
  /** Released here, as long as the tables do not say so. */
  readonly #released = new Map<string, NewEntry>();
  /** By destination, those of them that nothing waits before. */
  readonly #fresh = new Map<string, Fresh>();
  /** Drawn, so that no other node or process has the same. */
  #lastToken = randomInt(2 ** 47) * 32;
  /** When a suspect may be due; null for never. */
  #suspectDue: number | null = null;
  /** The last token of the claims that have ended, whatever came of them. */
  #decided = 0;

  constructor({ cluster, log }: { readonly cluster: Cluster; readonly log: Log }) {
    this.#cluster = cluster;
    this.#log = log;
    this.signal = new DueSignal(cluster.clock);
  }

  /** Of a claim that is under way: the database may have given it, and the answer comes. */
  isUndecided(token: number): boolean {
    return token > this.#decided;
  }

  nextDue(): number | null {
    const due = [this.hints.nextDue(), this.#suspectDue].filter((at) => at !== null);
    return this.signal.say(due.length === 0 ? null : Math.min(...due));
  }

  /** The outcome of a lease is known, or it is lost. */
  end({ token, uid }: Lease): void {
    this.held.delete(token);
    this.places.delete(uid);
  }

  /** An entry that this node has accepted may be given out. */
  release(entry: NewEntry): void {
    this.#released.set(entry.uid, entry);
    if (entry.hold !== undefined) return;
    const destinations = new Set(entry.recipients.map((one) => one.destination));
    if (destinations.size === 1) for (const destination of destinations) this.#addFresh(destination, entry);
    for (const destination of destinations) this.hints.add(destination, entry.nextAttempt);
    this.signal.scheduled(entry.nextAttempt);
  }

  #addFresh(destination: string, entry: NewEntry): void {
    const now = this.#cluster.clock.now();
    if (entry.nextAttempt > now || entry.recipients.some(({ lastReply = null }) => lastReply !== null)) return;
    const known = this.#fresh.get(destination);
    const otherDue = this.hints.dueOf(destination);
    if (known !== undefined) known.entries.push(entry);
    else if (otherDue === null || otherDue > now) this.#fresh.set(destination, { entries: [entry], otherDue });
  }

  /** Lets other nodes claim what was released here, while this one does not. Returns its destinations. */
  async offer(): Promise<ReadonlySet<string>> {
    const { session, database, clock } = this.#cluster;
    const destinations = new Set<string>();
    if (session === undefined) return destinations;
    while (this.#released.size > 0) {
      const some = this.#someReleased();
      this.#fresh.clear();
      await database.transaction('claim', (sql) => release(sql, some, { session, now: clock.now() }));
      this.#forget(some);
      for (const { recipients } of some) for (const { destination } of recipients) destinations.add(destination);
    }
    return destinations;
  }

  /** As many as one statement can change in its time. */
  #someReleased(): readonly NewEntry[] {
    const some: NewEntry[] = [];
    let recipients = 0;
    for (const entry of this.#released.values()) {
      some.push(entry);
      recipients += entry.recipients.length;
      if (recipients >= recipientsTogether) break;
    }
    return some;
  }

  #forget(released: readonly NewEntry[]): void {
    for (const entry of released) if (this.#released.get(entry.uid) === entry) this.#released.delete(entry.uid);
  }

  /** Recipients of a destination wait until that time, by a change of this node or of another one. */
  scheduled(destination: string, due: number, isSuspect = false): void {
    if (isSuspect) this.#suspectDue = Math.min(this.#suspectDue ?? Infinity, due);
    else this.#addOther(destination, due);
    this.signal.scheduled(due);
  }

  #addOther(destination: string, due: number): void {
    this.hints.add(destination, due);
    const fresh = this.#fresh.get(destination);
    if (fresh === undefined) return;
    if (due <= this.#cluster.clock.now()) this.#fresh.delete(destination);
    else fresh.otherDue = Math.min(fresh.otherDue ?? Infinity, due);
  }

  /**
   * What is claimed as it is: all of a destination, so that senders need not take turns. Everything else that was released
   * here is put where all nodes can claim it.
   */
  #takeFresh(wanted: readonly Wanted[], maxRecipients: number): readonly Direct[] {
    const direct: Direct[] = [];
    const before = new Map(this.#fresh);
    this.#fresh.clear();
    for (const want of wanted) {
      const { entries = [], otherDue = null } = before.get(want.destination) ?? {};
      if (entries.length === 0 || entries.length > want.room) continue;
      if (entries.some(({ recipients }) => recipients.length > maxRecipients)) continue;
      direct.push({ want, entries });
      // What comes during the claim is the next.
      this.#fresh.set(want.destination, { entries: [], otherDue });
    }
    return direct;
  }

  /** After a claim: when something else is due of their destinations. */
  #directTaken(direct: readonly Direct[]): void {
    for (const { want } of direct) {
      const fresh = this.#fresh.get(want.destination);
      if (fresh === undefined || fresh.entries.length > 0) continue;
      this.#fresh.delete(want.destination);
      this.hints.left(want, fresh.otherDue);
    }
  }

  async claim(options: ClaimOptions): Promise<readonly Lease[]> {
    const { session } = this.#cluster;
    if (session === undefined) return [];
    const released = [...this.#released.values()];
    const wanted = this.hints.share(options);
    const wantsSuspect = this.#suspectDue !== null && this.#suspectDue <= options.now && !this.#holdsSuspect();
    if (released.length === 0 && wanted.length === 0 && !wantsSuspect) return [];
    try {
      return await this.#claim(options, { released, wanted, wantsSuspect, session });
    } catch (error) {
      if (isOfOneRow(error)) await this.#holdDamaged(wanted);
      throw error;
    } finally {
      this.#decided = this.#lastToken;
    }
  }

  /** Holds what the database cannot read of what a claim would take first: the next claim gives out the others. */
  async #holdDamaged(wanted: readonly Wanted[]): Promise<void> {
    const { database } = this.#cluster;
    const first = (lane: number, order: string, where = ''): string =>
      `(select uid from postern.recipient where state in (1, 2) and lane = ${lane} ${where} order by ${order} limit $2)`;
    const ofDestination = 'and destination = w.destination';
    const found = await database.query<{ uid: string }>(
      'claim',
      `select r.uid from unnest($1::text[]) w(destination) cross join lateral (
         ${first(lanes.new, 'turn', ofDestination)} union all ${first(lanes.retry, 'due', ofDestination)}) r
       union ${first(lanes.suspect, 'due')}`,
      [wanted.map(({ destination }) => destination), maxEach],
    );
    const read = async (uids: readonly string[]): Promise<readonly never[]> => {
      await database.query('claim', 'select max(md5(envelope)) from postern.entry where uid = any($1::text[])', [uids]);
      return [];
    };
    const uids = found.map(({ uid }) => uid);
    await withoutBadRows(uids, read, (uid, error) => holdUnreadable(database, this.#log, { uid, error }));
  }

  async #claim(options: ClaimOptions, { released, wanted, wantsSuspect, session }: Asked): Promise<readonly Lease[]> {
    const direct = this.#takeFresh(wanted, options.maxRecipients ?? recipientLimit);
    const given = await this.#cluster.database
      .transaction('claim', async (sql) => {
        const fresh = await this.#pickDirect(sql, direct, { options, session });
        const leased = groupedBy(fresh, ({ uid }) => uid);
        // An operator may have changed some.
        const isLeased = ({ uid, recipients }: NewEntry): boolean => leased.get(uid)?.length === recipients.length;
        const taken = direct.filter(({ entries }) => entries.every(isLeased));
        const isTaken = new Set(taken.map(({ want }) => want));
        const asked = wanted.filter((want) => !isTaken.has(want));
        const offered = released.filter((entry) => !isLeased(entry));
        await release(sql, offered, { session, now: options.now });
        const rows = await this.#pick(sql, asked, { options, session });
        const left = await dueLeft(sql, asked, options.now);
        const suspects = wantsSuspect ? await this.#pickSuspect(sql, { options, session }) : undefined;
        return { fresh, taken, offered, rows, left, suspects };
      })
      .catch((error: unknown) => {
        this.#fresh.clear();
        throw error;
      });
    this.#forget(released);
    for (const [want, due] of given.left) {
      this.#fresh.delete(want.destination);
      this.hints.left(want, due);
    }
    this.#directTaken(given.taken);
    this.#advance([...given.left.keys()], given.rows);
    if (given.suspects !== undefined) this.#suspectDue = given.suspects.due;
    this.#tellOthers(given.offered);
    const accepted = new Map(direct.flatMap(({ entries }) => entries.map((entry) => [entry.uid, entry])));
    return this.#lease([...given.fresh, ...given.rows, ...(given.suspects?.rows ?? [])], accepted, {
      options,
      session,
    });
  }

  /** Of what was put where all can claim it, and of which this node has not taken all. */
  #tellOthers(offered: readonly NewEntry[]): void {
    const now = this.#cluster.clock.now();
    const due = new Set(
      offered
        .filter(({ hold, nextAttempt }) => hold === undefined && nextAttempt <= now)
        .flatMap(({ recipients }) => recipients.map(({ destination }) => destination))
        .filter((destination) => (this.hints.dueOf(destination) ?? Infinity) <= now),
    );
    if (due.size > 0) this.#cluster.ring('due', [...due]);
  }

  #advance(wanted: readonly Wanted[], rows: readonly ClaimedRow[]): void {
    const byDestination = groupedBy(rows, ({ destination }) => destination);
    for (const want of wanted) {
      const those = byDestination.get(want.destination) ?? [];
      const most = (lane: number, of: 'turn' | 'due') =>
        those.reduce((at, row) => (row.lane === lane ? Math.max(at, Number(row[of])) : at), 0);
      this.hints.taken(want, most(lanes.new, 'turn'), most(lanes.retry, 'due'));
    }
  }

  /** Reserves tokens: those that follow the returned one. */
  #tokens(count: number): number {
    const before = this.#lastToken;
    this.#lastToken += count;
    return before;
  }

  /** What nothing waits before, without the way over the lane of new mail. */
  async #pickDirect(
    sql: SqlTransaction,
    direct: readonly Direct[],
    { options: { now }, session }: Claiming,
  ): Promise<readonly ClaimedRow[]> {
    const entries = direct.flatMap((one) => one.entries);
    if (entries.length === 0) return [];
    const first = this.#tokens(entries.length) + 1;
    return sql.query<ClaimedRow>(
      `update postern.recipient r set state = 0, lane = 0, token = t.token, claimed_at = $1
       from unnest($2::text[], $3::bigint[], $4::boolean[]) as t(uid, token, is_first), postern.entry e
       where r.uid = t.uid and r.state = ${queued} and r.lane = 3 and r.session is not distinct from $5 and e.uid = t.uid
         and exists (select from postern.session where key = $5 and not dead)
       returning ${claimedColumns}`,
      [
        Math.floor(now),
        entries.map(({ uid }) => uid),
        entries.map((_, nth) => first + nth),
        entries.map(() => false),
        session,
      ],
    );
  }

  /**
   * Recipients of an entry are found by `state between 1 and 2`, so that only the primary key serves. For `in (1, 2)` PostgreSQL
   * may read a whole index of what waits for each of them, when it has counted that index while nothing waited.
   */
  async #pick(
    sql: SqlTransaction,
    wanted: readonly Wanted[],
    { options: { now, maxRecipients = recipientLimit }, session }: Claiming,
  ): Promise<readonly ClaimedRow[]> {
    if (wanted.length === 0) return [];
    const most = wanted.reduce((sum, { room }) => sum + room, 0);
    const rows = wanted.map(({ destination, room, fromTurn, fromDue }) => [destination, room, fromTurn, fromDue]);
    return sql.query<ClaimedRow>(
      `with want as (
         select * from unnest($1::text[], $2::int[], $3::bigint[], $4::bigint[]) as w(destination, room, from_turn, from_due)
       ), found as materialized (
         select w.destination, w.room, r.uid, r.manual, 0 as lane, r.turn as at from want w cross join lateral (
           select uid, manual, turn from postern.recipient
           where destination = w.destination and state in (1, 2) and lane = 0 and turn >= w.from_turn
           order by turn limit w.room for update skip locked) r
         union all
         select w.destination, w.room, r.uid, r.manual, 1, r.due from want w cross join lateral (
           select uid, manual, due from postern.recipient
           where destination = w.destination and state in (1, 2) and lane = 1 and due >= w.from_due and due <= $5
           order by due limit w.room for update skip locked) r
       ), entries as (
         select destination, room, uid, manual, lane, min(at) as at from found group by 1, 2, 3, 4, 5
       ), ranked as (
         select *, row_number() over (partition by destination, lane order by at, uid) as place from entries
       ), picked as materialized (
         select destination, uid, manual, $6::bigint + row_number() over () as token from (
           select *, row_number() over (partition by destination order by place, lane) as nth from ranked) r
         where nth <= room
       ), taken as materialized (
         select r.uid, r.idx, p.token, row_number() over (partition by p.token order by r.idx) = 1 as is_first
         from picked p cross join lateral (
           select uid, idx from postern.recipient
           where uid = p.uid and destination = p.destination and manual = p.manual and state between 1 and 2
             and (lane = 0 or lane = 1 and due <= $5)
           order by idx limit $7 for update skip locked) r
       )
       update postern.recipient r set state = 0, token = t.token, last_token = null, session = s.key, claimed_at = $5
       from taken t, postern.session s, postern.entry e
       where r.uid = t.uid and r.idx = t.idx and s.key = $8 and not s.dead and e.uid = r.uid
       returning ${claimedColumns}`,
      [...turned(rows), Math.floor(now), this.#tokens(most), Math.min(maxRecipients, recipientLimit), session],
    );
  }

  #holdsSuspect(): boolean {
    for (const { isSuspect } of this.held.values()) if (isSuspect) return true;
    return false;
  }

  /** One entry that an earlier session has died with, and when there is another one. */
  async #pickSuspect(
    sql: SqlTransaction,
    { options: { now, room, sites, maxRecipients = recipientLimit }, session }: Claiming,
  ): Promise<{ readonly rows: readonly ClaimedRow[]; readonly due: number | null }> {
    const waiting = await sql.query<{ destination: string; due: string }>(
      `select destination, min(due) as due from postern.recipient where state in (1, 2) and lane = 2
       group by destination order by 2`,
    );
    const isWelcome = (destination: string): boolean => {
      const site = sites === undefined ? destination : sites.of(destination);
      return site !== undefined && room(destination) > 0 && (sites === undefined || sites.room(site) > 0);
    };
    const due = waiting[0] === undefined ? null : Number(waiting[0].due);
    const first = waiting.find((one) => Number(one.due) <= now && isWelcome(one.destination));
    if (first === undefined) return { rows: [], due };
    const rows = await sql.query<ClaimedRow>(
      `with suspect as materialized (
         select uid, manual from postern.recipient
         where state in (1, 2) and lane = 2 and destination = $3 and due <= $2 order by due limit 1 for update skip locked
       ), taken as materialized (
         select r.uid, r.idx, r.idx = min(r.idx) over () as is_first from (
           select r.uid, r.idx from suspect p join postern.recipient r on r.uid = p.uid and r.manual = p.manual
         where r.state between 1 and 2 and r.lane = 2 and r.destination = $3 and r.due <= $2
         order by r.idx limit $5 for update of r skip locked) r
       )
       update postern.recipient r set state = 0, token = $1, last_token = null, session = s.key, claimed_at = $2
       from taken t, postern.session s, postern.entry e
       where r.uid = t.uid and r.idx = t.idx and s.key = $4 and not s.dead and e.uid = r.uid
       returning ${claimedColumns}`,
      [this.#tokens(1) + 1, Math.floor(now), first.destination, session, Math.min(maxRecipients, recipientLimit)],
    );
    return { rows, due };
  }

  /** Messages whose envelopes this server cannot read are held, and keep none of the others. */
  async #lease(
    rows: readonly ClaimedRow[],
    accepted: ReadonlyMap<string, NewEntry>,
    claiming: Claiming,
  ): Promise<readonly Lease[]> {
    const leases: Lease[] = [];
    const unreadable: Unreadable[] = [];
    for (const [token, those] of groupedBy(rows, (row) => row.token)) {
      const first = those.find((row) => row.envelope !== null) ?? those[0];
      if (first === undefined) continue;
      try {
        leases.push(this.#begin(first, those, accepted.get(first.uid) ?? acceptedOf(first), claiming));
      } catch (error) {
        unreadable.push({ uid: first.uid, tokens: [Number(token)], error });
      }
    }
    for (const one of unreadable) {
      // One that is not held now is given back as an unknown lease.
      await holdUnreadable(this.#cluster.database, this.#log, one).catch(() => undefined);
    }
    return leases;
  }

  #begin(
    first: ClaimedRow,
    rows: readonly ClaimedRow[],
    entry: NewEntry,
    { options: { leaseMs }, session }: Claiming,
  ): Lease {
    const lease: Lease = {
      uid: first.uid,
      recipients: rows
        .map(({ idx, address, attempts }) => {
          return { index: idx, address: entry.recipients[idx]?.address ?? address, attempts };
        })
        .sort((one, other) => one.index - other.index),
      destination: first.destination,
      entry,
      token: Number(first.token),
      manual: first.manual,
      interrupted: rows.some(isInterrupted),
      holds: () => this.#cluster.mayEnd(session),
    };
    const { body, body_table: table } = first;
    if (table !== null) this.places.set(first.uid, { table, id: body, size: Number(first.size) });
    const deadline = this.#cluster.clock.monotonic() + leaseMs;
    this.held.set(lease.token, { lease, session, deadline, isSuspect: first.lane === lanes.suspect });
    return lease;
  }
}

interface Asked {
  readonly released: readonly NewEntry[];
  readonly wanted: readonly Wanted[];
  readonly wantsSuspect: boolean;
  readonly session: string;
}

interface Claiming {
  readonly options: ClaimOptions;
  readonly session: string;
}

/**
 * Puts recipients that were accepted here where they can be claimed. By `is not distinct from`, as the index of sessions is
 * full of dead rows: each claim and outcome leaves one.
 */
async function release(
  sql: SqlTransaction,
  entries: readonly NewEntry[],
  { session, now }: { readonly session: string; readonly now: number },
): Promise<void> {
  if (entries.length === 0) return;
  await sql.query(
    `update postern.recipient set lane = case when due <= $1 and state = ${queued} then 0 else 1 end, session = null
     where uid = any($2::text[]) and lane = 3 and session is not distinct from $3`,
    [Math.floor(now), entries.map(({ uid }) => uid), session],
  );
}

/** When something is due next in these destinations. */
async function dueLeft(
  sql: SqlTransaction,
  wanted: readonly Wanted[],
  now: number,
): Promise<ReadonlyMap<Wanted, number | null>> {
  if (wanted.length === 0) return new Map();
  const found = await sql.query<{ destination: string; is_new: boolean; due: string | null }>(
    `select w.destination,
       exists (select 1 from postern.recipient r where r.destination = w.destination and r.state in (1, 2) and r.lane = 0
         and r.turn >= w.from_turn) as is_new,
       (select r.due from postern.recipient r where r.destination = w.destination and r.state in (1, 2) and r.lane = 1
         and r.due >= w.from_due order by r.due limit 1) as due
     from unnest($1::text[], $2::bigint[], $3::bigint[]) as w(destination, from_turn, from_due)`,
    turned(wanted.map(({ destination, fromTurn, fromDue }) => [destination, fromTurn, fromDue])),
  );
  const left = new Map(found.map((one) => [one.destination, one]));
  return new Map(
    wanted.map((want) => {
      const { is_new: isNew = false, due = null } = left.get(want.destination) ?? {};
      if (isNew) return [want, now];
      return [want, due === null ? null : Number(due)];
    }),
  );
}

function acceptedOf(row: ClaimedRow): NewEntry {
  if (row.envelope === null) throw problem('internal', 'A lease has no entry.');
  const { sender, recipients, rest } = decodedEnvelope(row.envelope);
  return decodeEnvelope({
    uid: row.uid,
    sender,
    size: Number(row.size),
    queuedAt: Number(row.queued_at),
    expiresAt: Number(row.expires_at),
    recipients,
    envelope: rest,
  });
}

/** An earlier attempt may have delivered without a recorded result. */
function isInterrupted({ replied_at: at, status, crashes, last_attempt: last }: ClaimedRow): boolean {
  if (crashes > 0) return true;
  return last !== null && (at === null || Number(at) < Number(last) || status?.startsWith('4.3.') === true);
}
