import { type SharedDatabase, sqlState } from '../../../core/contracts/cluster.js';
import type { Log } from '../../../core/log/log.js';
import { oldTable } from './bodies.js';

export interface RingLimits {
  /** New bodies go to one table for so long, or until it is that large. */
  readonly openMs: number;
  readonly maxBytes: number;
  /** A table is not emptied sooner after it was closed. */
  readonly restMs: number;
  /** So few entries do not keep a table: their bodies move. More do while another one is empty. */
  readonly fewEntries: number;
}

export const defaultRing: RingLimits = {
  openMs: 600_000,
  maxBytes: 2 * 1024 ** 3,
  restMs: 300_000,
  fewEntries: 2000,
};

/** Entries of one transaction whose bodies move, and the bytes of these. */
const together = 500;
const bytesTogether = 16 * 1024 * 1024;
/** Parts of each body that one statement moves. */
const partsTogether = 64;
/** SQLSTATE of a lock that another one holds. */
const lockHeld = '55P03';

/**
 * The tables of young bodies, `postern.body_0` to `body_7`. One is open: new bodies go there. Closed ones are emptied by
 * TRUNCATE when no entry names them, so that a body that is done leaves nothing behind for vacuum.
 * Entries are asked for in the order of an index: statistics, which are always old, would lead past it.
 *
 * Each step asks in its own transaction what it depends on, so it does not matter who does it, how late, and how many at
 * a time. Nothing that was accepted is lost:
 * - An entry is committed in a transaction that has read or written its body, and so holds a lock on the table of it.
 *   TRUNCATE has the table for itself, and asks for entries after that.
 * - Bodies and their entries move in one transaction, under the locks of these entries.
 * - A table that is closed or emptied while a transaction writes into it has what it wrote: only the next TRUNCATE, which
 *   asks again, would remove it.
 */
export class BodyRing {
  readonly #database: SharedDatabase;
  readonly #log: Log;
  readonly #limits: RingLimits;

  constructor(database: SharedDatabase, log: Log, limits: RingLimits) {
    this.#database = database;
    this.#log = log;
    this.#limits = limits;
  }

  /** Empties tables that are needed no more, and opens the next one when it is time. Called at intervals. */
  async turn(): Promise<void> {
    const { restMs, openMs, maxBytes, fewEntries } = this.#limits;
    const tables = await this.#database.query<{ number: number; is_empty: boolean }>(
      'pages',
      `select number, opened_at is null as is_empty from postern.body_table
       where opened_at is null or closed_at <= clock_timestamp() - $1 * interval '1 millisecond' order by closed_at`,
      [restMs],
    );
    const closed = tables.filter((one) => !one.is_empty);
    let hasEmpty = closed.length < tables.length;
    for (const { number } of closed) {
      const entries = await this.#database.query(
        'pages',
        `select from postern.entry where body_table >= $1 and body_table <= $1 order by body_table, uid limit $2`,
        [number, fewEntries + 1],
      );
      if (entries.length > fewEntries) continue;
      if (entries.length > 0) await this.#move(number);
      if (await this.#empty(number)) hasEmpty = true;
    }
    const [oldest] = closed;
    if (!hasEmpty && oldest !== undefined) {
      await this.#move(oldest.number);
      await this.#empty(oldest.number);
    }
    await this.#database.query(
      'pages',
      `with closed as (
         update postern.body_table set closed_at = clock_timestamp()
         where opened_at is not null and closed_at is null
           and pg_relation_size(('postern.body_' || number)::regclass) > 0
           and (opened_at <= clock_timestamp() - $1 * interval '1 millisecond'
             or pg_total_relation_size(('postern.body_' || number)::regclass) >= $2)
           and exists (select from postern.body_table where opened_at is null)
         returning number)
       update postern.body_table set opened_at = clock_timestamp()
       where number = (select number from postern.body_table where opened_at is null order by number limit 1)
         and exists (select from closed)`,
      [openMs, maxBytes],
    );
  }

  /** False when it is still needed, or used: the next round tries again. */
  async #empty(number: number): Promise<boolean> {
    try {
      return await this.#database.transaction('pages', async (sql) => {
        // One of several empties it, and none empties a table that is open again.
        const closed = await sql.query(
          `select from postern.body_table
           where number = $1 and closed_at <= clock_timestamp() - $2 * interval '1 millisecond' for update skip locked`,
          [number, this.#limits.restMs],
        );
        if (closed.length === 0) return false;
        await sql.query("set local lock_timeout = '200ms'");
        await sql.query(`lock table postern.body_${number} in access exclusive mode`);
        const named = await sql.query(
          'select from postern.entry where body_table >= $1 and body_table <= $1 order by body_table, uid limit 1',
          [number],
        );
        if (named.length > 0) return false;
        await sql.query(`truncate postern.body_${number}`);
        await sql.query('update postern.body_table set opened_at = null, closed_at = null where number = $1', [number]);
        return true;
      });
    } catch (error) {
      if (sqlState(error) !== lockHeld) throw error;
      this.#log.debug({ table: `body_${number}` }, 'a table of bodies is in use, and emptied later');
      return false;
    }
  }

  /** Moves what is still wanted to the table of old bodies. Entries that are locked stay for the next round. */
  async #move(number: number): Promise<void> {
    for (let last: string | undefined = ''; last !== undefined;) {
      const from: string = last;
      last = await this.#database.transaction('pages', async (sql) => {
        const named = await sql.query<{ uid: string; body: string }>(
          `select uid, body from (
             select uid, body, sum(size) over (order by uid) - size as before from (
               select uid, body, size from postern.entry
               where (body_table, uid) > ($1::smallint, $2::text) and body_table <= $1
               order by body_table, uid limit $3 for update skip locked) locked) chosen
           where before < $4 order by uid`,
          [number, from, together, bytesTogether],
        );
        if (named.length === 0) return undefined;
        const bodies = named.map(({ body }) => body);
        for (let part = 0, moved = 1; moved > 0; part += partsTogether) {
          const rows = await sql.query(
            `update postern.body set table_number = ${oldTable}
             where table_number = $1 and id = any($2::text[]) and part >= $3 and part < $4 returning 1`,
            [number, bodies, part, part + partsTogether],
          );
          moved = rows.length;
        }
        const uids = named.map(({ uid }) => uid);
        await sql.query(`update postern.entry set body_table = ${oldTable} where uid = any($1::text[])`, [uids]);
        return uids.at(-1);
      });
    }
  }
}
