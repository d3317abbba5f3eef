import { Readable } from 'node:stream';
import type { SharedDatabase, SqlTransaction } from '../../../core/contracts/cluster.js';
import { LRUCache } from 'lru-cache';
import { problem } from '../../../core/problem.js';
import { Batches } from './batches.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';

/** Larger messages are written in parts before their entry. */
export const partBytes = 256 * 1024;

/** Number of the table of bodies that left the ring. */
export const oldTable = 8;

/** The table of the ring that new bodies go to: there is always one. */
export const presentTable = '(select number from postern.body_table where opened_at is not null and closed_at is null)';

/** Statements for each table of bodies: one that is prepared for `postern.body` locks all of them. */
const textsOf = Array.from({ length: oldTable + 1 }, (_, number) => {
  const name = number === oldTable ? 'body_old' : `body_${number}`;
  return {
    insert: `insert into postern.${name} (table_number, id, part, data)
      select ${number}, id, 0, substr($1::bytea, start, length) from unnest($2::text[], $3::int[], $4::int[]) as u(id, start, length)`,
    first: `select id, data from postern.${name} where table_number = ${number} and id = any($1::text[]) and part = 0`,
    part: `select data from postern.${name} where table_number = ${number} and id = $1 and part = $2`,
    count: `select id, count(*)::int as parts from postern.${name} where table_number = ${number} and id = any($1::text[])
      group by id`,
  };
});

/** What is stored of a message. */
export type StorableMessage = Pick<SpooledMessage, 'size' | 'traceOffset' | 'open' | 'memory'>;

/** A large message whose parts were written before its entry. */
export interface StoredParts {
  readonly table: number;
  readonly parts: number;
}

/**
 * Writes a large message in parts, one statement each. Its table may be emptied until an entry names it: who inserts
 * the entry asks `lostBodies` first.
 */
export async function storeParts(database: SharedDatabase, id: string, message: StorableMessage): Promise<StoredParts> {
  let table: number | null = null;
  let parts = 0;
  let chunks: Buffer[] = [];
  let bytes = 0;
  const store = async (): Promise<void> => {
    const [row] = await database.query<{ table_number: number }>(
      'bodies',
      `insert into postern.body (table_number, id, part, data) values (coalesce($1::smallint, ${presentTable}), $2, $3, $4)
       on conflict (table_number, id, part) do update set data = excluded.data returning table_number`,
      [table, id, parts, Buffer.concat(chunks)],
    );
    table = row?.table_number ?? null;
    parts += 1;
    chunks = [];
    bytes = 0;
  };
  for await (const chunk of message.open(message.traceOffset) as AsyncIterable<Buffer>) {
    for (let at = 0; at < chunk.length; at += partBytes) {
      const piece = chunk.subarray(at, at + partBytes);
      chunks.push(piece);
      bytes += piece.length;
      if (bytes >= partBytes) await store();
    }
  }
  if (bytes > 0) await store();
  if (table === null) throw problem('internal', 'A message without content.');
  return { table, parts };
}

interface Stored {
  readonly birth: string;
  readonly stored: StoredParts | undefined;
}

/**
 * Messages whose parts are gone, because their table was emptied meanwhile. No table with parts of the others is emptied
 * before the transaction ends: these reads lock it against that.
 */
export async function lostBodies(sql: SqlTransaction, items: readonly Stored[]): Promise<ReadonlySet<string>> {
  const large = items.flatMap(({ birth, stored }) => (stored === undefined ? [] : [{ birth, ...stored }]));
  const there = new Map<string, number>();
  for (const table of new Set(large.map((one) => one.table))) {
    const ids = large.filter((one) => one.table === table).map(({ birth }) => birth);
    const rows = await sql.query<{ id: string; parts: number }>(textsOf[table]?.count ?? '', [ids]);
    for (const { id, parts } of rows) there.set(id, parts);
  }
  return new Set(large.filter(({ birth, parts }) => there.get(birth) !== parts).map(({ birth }) => birth));
}

/**
 * Small bodies of one table, in the transaction of their entries. As one value that the database cuts: an array of bytes
 * would be hexadecimal text.
 */
export async function insertBodies(
  sql: SqlTransaction,
  table: number,
  bodies: readonly { readonly id: string; readonly content: Buffer }[],
): Promise<void> {
  let end = 1;
  const starts = bodies.map(({ content }) => (end += content.length) - content.length);
  await sql.query(textsOf[table]?.insert ?? '', [
    Buffer.concat(bodies.map(({ content }) => content)),
    bodies.map(({ id }) => id),
    starts,
    bodies.map(({ content }) => content.length),
  ]);
}

/** Of entries that need them no more. Young ones stay: their table is emptied as a whole. */
export async function deleteOldBodies(sql: SqlTransaction, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await sql.query(`delete from postern.body where table_number = ${oldTable} and id = any($1::text[])`, [ids]);
}

/** Where the message of an entry lies. */
export interface BodyPlace {
  readonly table: number;
  readonly id: string;
  readonly size: number;
}

const readTogether = 64;
const bytesTogether = 4 * 1024 * 1024;
const bytesInMemory = 32 * 1024 * 1024;

/** Reads the messages of entries, also while they move to another table. */
export class BodyReader {
  readonly #database: SharedDatabase;
  /** Small messages that this node has accepted and not sent yet, by their keys. */
  readonly #memory = new LRUCache<string, Buffer>({
    maxSize: bytesInMemory,
    sizeCalculation: (content) => content.length + 1,
  });
  readonly #batches: Batches<BodyPlace, Buffer | null>;

  constructor(database: SharedDatabase) {
    this.#database = database;
    this.#batches = new Batches({
      concurrent: 1,
      maxItems: () => readTogether,
      maxWeight: bytesTogether,
      weightOf: ({ size }) => size,
      run: (places) => this.#first(places),
    });
  }

  remember(id: string, content: Buffer): void {
    this.#memory.set(id, content);
  }

  forget({ id }: BodyPlace): void {
    this.#memory.delete(id);
  }

  async open(uid: string): Promise<Readable> {
    const place = await this.#place(uid);
    const first = await this.#part(uid, place, 0);
    const rest = this.#rest(uid, first.place, first.data.length);
    const read = async function* (): AsyncGenerator<Buffer> {
      yield first.data;
      yield* rest;
    };
    return Readable.from(read());
  }

  async *#rest(uid: string, from: BodyPlace, bytes: number): AsyncGenerator<Buffer> {
    let place = from;
    let read = bytes;
    for (let part = 1; read < place.size; part += 1) {
      const next = await this.#part(uid, place, part);
      place = next.place;
      read += next.data.length;
      yield next.data;
    }
  }

  /**
   * The whole message when it is small.
   *
   * @param known where it was when its lease began
   */
  async bytes(uid: string, known?: BodyPlace): Promise<Buffer | undefined> {
    const place = known ?? (await this.#place(uid));
    if (place.size > partBytes) return undefined;
    const data = this.#memory.get(place.id) ?? (await this.#batches.add(place));
    return data ?? (await this.#part(uid, place, 0)).data;
  }

  /** First parts; null for one that is not there any more. */
  async #first(places: readonly BodyPlace[]): Promise<readonly (Buffer | null)[]> {
    const found = new Map<string, Buffer>();
    for (const table of new Set(places.map((one) => one.table))) {
      const ids = places.filter((one) => one.table === table).map(({ id }) => id);
      const rows = await this.#database.query<{ id: string; data: Buffer }>('bodies', textsOf[table]?.first ?? '', [
        ids,
      ]);
      for (const { id, data } of rows) found.set(id, data);
    }
    return places.map(({ id }) => found.get(id) ?? null);
  }

  async #place(uid: string): Promise<BodyPlace> {
    const [row] = await this.#database.query<{ body_table: number; body: string; size: string }>(
      'bodies',
      'select body_table, body, size from postern.entry where uid = $1 and body_table is not null',
      [uid],
    );
    if (row === undefined) throw problem('not-found', 'There is no such message in the queue.');
    return { table: row.body_table, id: row.body, size: Number(row.size) };
  }

  /** A body that is not where it was has moved, once, or has left the queue. */
  async #part(
    uid: string,
    place: BodyPlace,
    part: number,
  ): Promise<{ readonly data: Buffer; readonly place: BodyPlace }> {
    const [row] = await this.#database.query<{ data: Buffer }>('bodies', textsOf[place.table]?.part ?? '', [
      place.id,
      part,
    ]);
    if (row !== undefined) return { data: row.data, place };
    const now = await this.#place(uid);
    if (now.id !== place.id || now.table === place.table) {
      throw problem('not-found', 'The message has left the queue.');
    }
    return this.#part(uid, now, part);
  }
}
