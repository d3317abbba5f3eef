import type { Cluster, SqlTransaction } from '../../../core/contracts/cluster.js';
import type { Settlement } from '../../../core/contracts/relay-queue-store.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { ChangeDeps } from '../queue/change.js';
import { loseLease } from '../queue/leases.js';
import { settleLease } from '../queue/ledger.js';
import { type EntryLease, isWaiting, normalReason } from '../queue/queued-entry.js';
import { Batches, withoutBadRows } from './batches.js';
import { type Claims, type HeldLease, recipientsTogether } from './claims.js';
import { holdUnreadable, lanes, LockedEntries, type StoredRows } from './entry-rows.js';
import type { KeptOutcome, OutageLog } from './outage-log.js';
import type { QueueMeter } from './queue-meter.js';

/** Outcomes of one transaction; entries whose leases are taken away together. */
const together = 200;
/** Lost leases are tried again within this time, by chance. Milliseconds. */
const spreadMs = 5000;
/** Before an outcome that the database refuses for its content is offered again. Milliseconds. */
const refusedMs = 60_000;
/** A claim whose answer was lost has failed for certain after this time. Milliseconds. */
const doubtMs = 10_000;

export const changeDeps: ChangeDeps = { intern: (text) => text, reasonOf: normalReason };

interface SettlementsInput {
  readonly cluster: Cluster;
  readonly claims: Claims;
  /** Takes outcomes that the database does not. */
  readonly outages: OutageLog;
  readonly log: Log;
  /** Random integer below `limit`. */
  readonly random: (limit: number) => number;
  readonly committed: (entries: LockedEntries) => void;
  readonly meter?: QueueMeter | undefined;
}

/** Ends leases: with their outcome, or because the node that held them is dead. */
export class Settlements {
  readonly #input: SettlementsInput;
  readonly #batches: Batches<KeptOutcome, 'settled' | 'conflict'>;
  /** By token: leases whose outcome is being written. */
  readonly #settling = new Map<number, HeldLease>();
  /** Records that the database refuses for their content: when they are offered again, by `clock.monotonic()`. */
  readonly #refused = new Map<number, number>();
  #offering: Promise<void> | undefined;
  /** Outcomes per transaction: halved after a failure, doubled after a success. */
  #together = together;

  constructor(input: SettlementsInput) {
    this.#input = input;
    this.#batches = new Batches<KeptOutcome, 'settled' | 'conflict'>({
      concurrent: 1,
      maxItems: () => this.#together,
      run: (items) => this.#write(items),
      done: (items, begun) => input.meter?.committed('outcome', items, begun),
    });
  }

  async settle(token: number, uid: string, settlement: Settlement): Promise<void> {
    const { held } = this.#input.claims;
    const lease = held.get(token);
    if (lease === undefined || lease.lease.uid !== uid) throw problem('conflict', 'The lease has ended.');
    this.#input.claims.end(lease.lease);
    this.#settling.set(token, lease);
    const outcome = { token, uid, settlement };
    try {
      const done = await this.#batches.add(outcome);
      if (done === 'conflict') throw problem('conflict', 'The lease was lost.');
    } catch (error) {
      if (isProblem(error) && error.problem === 'conflict') throw error;
      if (await this.#keep(outcome)) return;
      held.set(token, lease);
      throw error;
    } finally {
      this.#settling.delete(token);
    }
  }

  /** False when the disk does not take it either. */
  async #keep(outcome: KeptOutcome): Promise<boolean> {
    const { outages, log } = this.#input;
    try {
      await outages.keep('outcomes', outcome);
      return true;
    } catch (error) {
      const sentence = 'the outcome of an attempt cannot be put on the disk while the database is away';
      log.error({ uid: outcome.uid, err: error }, sentence);
      return false;
    }
  }

  /**
   * Writes the outcomes that wait on the disk, those of an earlier process as well; the database decides which come too
   * late. Rejects while it is away.
   */
  offer(): Promise<void> {
    return (this.#offering ??= this.#offer().finally(() => (this.#offering = undefined)));
  }

  async #offer(): Promise<void> {
    const { cluster, outages, log } = this.#input;
    const now = cluster.clock.monotonic();
    const kept = [...outages.outcomes].filter(([number]) => now >= (this.#refused.get(number) ?? now));
    let [at, written] = [0, 0];
    while (at < kept.length) {
      const some = kept.slice(at, at + this.#together);
      at += some.length;
      const results = await this.#writeKept(some.map(([, outcome]) => outcome));
      for (const [nth, [, { uid, settlement }]] of some.entries()) {
        if (results[nth] !== 'conflict' || settlement.attempt === undefined) continue;
        log.error({ uid }, 'possible duplicate: the outcome of an attempt came after its lease was lost');
      }
      const done = some.flatMap(([number], nth) => (results[nth] === 'refused' ? [] : [number]));
      for (const [number] of some) this.#refused.set(number, now + refusedMs);
      for (const number of done) this.#refused.delete(number);
      await outages.done(done);
      written += done.length;
    }
    if (written > 0) log.info({ outcomes: written }, 'outcomes that waited for the database are written');
  }

  /** One that cannot be written stays, and keeps none of the others. */
  #writeKept(items: readonly KeptOutcome[]): Promise<readonly ('settled' | 'conflict' | 'refused')[]> {
    return withoutBadRows<KeptOutcome, 'settled' | 'conflict' | 'refused'>(
      items,
      (some) => this.#write(some),
      ({ uid }, error) => {
        this.#input.log.error({ uid, err: error }, 'the database refuses the outcome of an attempt');
        return Promise.resolve('refused');
      },
    );
  }

  idle(): Promise<void> {
    return this.#batches.idle();
  }

  /** Leases of earlier sessions of this process are under way, or their outcomes are being written. */
  get hasEarlier(): boolean {
    const { cluster, claims } = this.#input;
    return [...claims.held.values(), ...this.#settling.values()].some(({ session }) => session !== cluster.session);
  }

  async #write(items: readonly KeptOutcome[]): Promise<readonly ('settled' | 'conflict')[]> {
    const { cluster } = this.#input;
    const now = cluster.clock.now();
    const uids = [...new Set(items.map(({ uid }) => uid))].sort();
    const writing = cluster.database.transaction('settle', async (sql) => {
      const locked = await LockedEntries.lock(sql, uids, changeDeps);
      let counted = 0;
      const done = items.map(({ token, uid, settlement }): 'settled' | 'conflict' => {
        const rows = locked.get(uid);
        const open = rows && leaseOf(rows, token);
        if (rows?.leases.some(({ lastToken }) => lastToken === -token) === true) return 'settled';
        if (rows === undefined || open === undefined) return 'conflict';
        if (!rows.leases.some((one) => one.token === token)) counted += 1;
        locked.change(rows, settleLease(rows.entry, open, settlement, now), now);
        return 'settled';
      });
      await locked.write(sql, now);
      return { entries: locked, results: done, late: counted };
    });
    const { entries, results, late } = await writing.catch((error: unknown) => {
      this.#together = Math.ceil(items.length / 2);
      throw error;
    });
    this.#together = Math.min(together, 2 * this.#together);
    this.#input.committed(entries);
    this.#input.meter?.late('counted', late);
    this.#input.meter?.late('refused', results.filter((result) => result === 'conflict').length);
    return results;
  }

  /** Takes the leases of dead sessions away, and releases what they had not. Returns whether there may be more. */
  async takeFromTheDead(): Promise<boolean> {
    const { cluster } = this.#input;
    const released = await cluster.database.query<{ destination: string; due: string }>(
      'settle',
      `with found as materialized (
         select r.uid, r.idx from postern.session s cross join lateral (
           select uid, idx from postern.recipient where session = s.key and lane = 3 limit $2 for update skip locked) r
         where s.dead limit $2
       )
       update postern.recipient r set lane = case when r.state = 2 and r.due <= $1 then 0 else 1 end, session = null
       from found f where r.uid = f.uid and r.idx = f.idx returning r.destination, r.due`,
      [Math.floor(cluster.clock.now()), recipientsTogether],
    );
    for (const { destination, due } of released) this.#input.claims.scheduled(destination, Number(due));
    const found = await cluster.database.query<{ uid: string }>(
      'settle',
      `select distinct r.uid from postern.session s cross join lateral (
         select uid from postern.recipient where session = s.key and state = 0 limit $1) r
       where s.dead limit $1`,
      [together],
    );
    await this.#lose(found, { crashed: true, due: this.spread });
    return released.length >= recipientsTogether || found.length >= together;
  }

  /** Gives up leases of this node that have run out, or all of them when it stops. */
  async abandon(leases: readonly HeldLease[], due: (now: number) => number): Promise<void> {
    for (const { lease } of leases) this.#input.claims.end(lease);
    const tokens = new Set(leases.map(({ lease }) => lease.token));
    const uids = leases.map(({ lease: { uid } }) => ({ uid }));
    for (let at = 0; at < uids.length; at += together) {
      await this.#lose(uids.slice(at, at + together), { tokens, crashed: false, due });
    }
  }

  /** Soon, but not all at once. */
  readonly spread = (now: number): number => now + this.#input.random(spreadMs);

  async #lose(found: readonly { readonly uid: string }[], loss: Loss): Promise<void> {
    const { cluster, log } = this.#input;
    const uids = [...new Set(found.map(({ uid }) => uid))].sort();
    const tokens = [...(loss.tokens ?? [])];
    await withoutBadRows(
      uids,
      (some) => this.#loseTogether(some, loss),
      (uid, error) => holdUnreadable(cluster.database, log, { uid, tokens, error }),
    );
  }

  async #loseTogether(uids: readonly string[], loss: Loss): Promise<readonly never[]> {
    if (uids.length === 0) return [];
    const { cluster } = this.#input;
    const now = cluster.clock.now();
    const { entries, lost } = await cluster.database.transaction('settle', async (sql) => {
      const locked = await LockedEntries.lock(sql, uids, changeDeps);
      const dead = loss.crashed ? await deadSessions(sql) : new Set<string>();
      let taken = 0;
      for (const rows of locked.values()) taken += loseLeases(locked, rows, { ...loss, dead, now });
      await locked.write(sql, now);
      return { entries: locked, lost: taken };
    });
    this.#input.committed(entries);
    if (loss.crashed) this.#input.meter?.lost(lost);
    return [];
  }

  /** Gives back what the database says is of this session, though this node knows nothing of it. */
  async giveBackUnknown(): Promise<void> {
    const { cluster, claims, outages, log } = this.#input;
    const { session } = cluster;
    if (session === undefined) return;
    const found = await cluster.database.query<{ uid: string; token: string }>(
      'settle',
      'select distinct uid, token from postern.recipient where session = $1 and state = 0 and claimed_at < $2',
      [session, Math.floor(cluster.clock.now() - doubtMs)],
    );
    const kept = new Set(Array.from(outages.outcomes.values(), ({ token }) => token));
    const isKnown = (token: number): boolean =>
      claims.held.has(token) || this.#settling.has(token) || kept.has(token) || claims.isUndecided(token);
    const unknown = found.filter(({ token }) => !isKnown(Number(token)));
    if (unknown.length === 0) return;
    await withoutBadRows(
      unknown.map(({ uid, token }) => ({ uid, token: Number(token) })),
      (some) => this.#giveBack(some),
      ({ uid, token }, error) => holdUnreadable(cluster.database, log, { uid, tokens: [token], error }),
    );
    log.warn({ leases: unknown.length }, 'leases of claims without an answer are given back');
  }

  async #giveBack(leases: readonly { readonly uid: string; readonly token: number }[]): Promise<readonly never[]> {
    const { cluster } = this.#input;
    const now = cluster.clock.now();
    const entries = await cluster.database.transaction('settle', async (sql) => {
      const locked = await LockedEntries.lock(sql, leases.map(({ uid }) => uid).sort(), changeDeps);
      for (const { uid, token } of leases) {
        const rows = locked.get(uid);
        const lease = rows?.entry.details.leases.find((one) => one.token === token);
        if (rows === undefined || lease === undefined) continue;
        locked.change(rows, settleLease(rows.entry, lease, { results: [] }, now), now);
      }
      await locked.write(sql, now);
      return locked;
    });
    this.#input.committed(entries);
    return [];
  }
}

interface Loss {
  /** Only these leases. */
  readonly tokens?: ReadonlySet<number>;
  /** Only those of dead sessions, whose processes may have died of the message. */
  readonly crashed: boolean;
  /** The time of the next attempt. */
  readonly due: (now: number) => number;
}

function loseLeases(
  locked: LockedEntries,
  rows: StoredRows,
  { tokens, crashed, due, dead, now }: Loss & { readonly dead: ReadonlySet<string>; readonly now: number },
): number {
  let taken = 0;
  for (const lease of rows.entry.details.leases) {
    const row = rows.leases.find(({ token }) => token === lease.token);
    if (row === undefined || (tokens !== undefined && !tokens.has(lease.token))) continue;
    if (crashed && (row.session === null || !dead.has(row.session))) continue;
    const moment = { now, due: due(now), crashed: crashed && taken === 0, alone: row.lane === lanes.suspect };
    locked.change(rows, loseLease(rows.entry, lease, moment), now, true);
    taken += 1;
  }
  return taken;
}

async function deadSessions(sql: SqlTransaction): Promise<ReadonlySet<string>> {
  const rows = await sql.query<{ key: string }>('select key from postern.session where dead');
  return new Set(rows.map(({ key }) => key));
}

/** Recipients that the lease has, or had while no other lease has begun. */
function leaseOf({ entry, leases }: StoredRows, token: number): EntryLease | undefined {
  const those = leases.filter(({ index, ...row }) => {
    const recipient = entry.recipients[index];
    if (recipient === undefined) return false;
    return recipient.state === 'active' ? row.token === token : row.lastToken === token && isWaiting(recipient);
  });
  if (those.length === 0) return undefined;
  return { token, at: those[0]?.claimedAt ?? 0, recipients: those.map(({ index }) => index) };
}
