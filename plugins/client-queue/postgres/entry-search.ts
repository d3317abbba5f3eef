import { type SharedDatabase, type SqlRow, sqlState, type SqlTransaction } from '../../../core/contracts/cluster.js';
import type { EntryFilter, EntryPage, EntrySort, ListOptions } from '../../../core/contracts/relay-queue.js';
import { problem } from '../../../core/problem.js';
import { decodeCursor, encodeCursor, never, summaryOf } from '../queue/entry-list.js';
import { withoutBadRows } from './batches.js';
import { conditionOf, Values } from './entry-conditions.js';
import { lanes, readEntries, type StoredRows } from './entry-rows.js';

/** Of one statement when all are read. */
const uidsTogether = 10_000;

/** Destinations of one statement of a scan, and when the database takes too long for them. */
const [destinationsTogether, minTogether] = [5000, 50];

const waitsFor = 'r.state in (1, 2) and r.lane <> 3';

const sortKeys: Readonly<Record<Exclude<EntrySort, 'nextAttempt'>, string>> = {
  queuedAt: 'e.queued_at',
  lastAttempt: `coalesce(e.last_attempt, ${never})`,
  expiresAt: 'e.expires_at',
  size: 'e.size',
  attempts: '(select max(r.attempts)::bigint from postern.recipient r where r.uid = e.uid)',
  sender: `coalesce(lower(e.sender), '') collate "C"`,
};

/** Beyond it, entries are not counted. */
const maxCounted = 10_000;

/** A part of the sorted entries that match. */
interface Stretch {
  readonly where: string;
  readonly sort: EntrySort;
  readonly by: 'asc' | 'desc';
  /** Condition on key and uid of an entry; empty for none. */
  readonly beside: string;
  readonly offset: number;
  readonly limit: number;
}

/** Uids and keys of a stretch. */
function stretchText({ where, sort, by, beside, offset, limit }: Stretch): string {
  const place = `order by key ${by}, uid ${by}`;
  const limits = `offset ${offset} limit ${limit}`;
  const besides = (key: string): string => (beside === '' ? '' : `and (${key}, e.uid) ${beside}`);
  if (sort !== 'nextAttempt') {
    const key = sortKeys[sort];
    return `select e.uid, ${key} as key from postern.entry e where ${where} ${besides(key)} ${place} ${limits}`;
  }
  // What waits is found by the index of due times, all others have the same key.
  const first = `not exists (select 1 from postern.recipient o where o.uid = r.uid and o.state in (1, 2) and o.lane <> 3
    and (o.due, o.idx) < (r.due, r.idx))`;
  const waiting = `select r.uid, r.due as key from postern.recipient r join postern.entry e on e.uid = r.uid
    where ${waitsFor} and ${first} and ${where} ${beside === '' ? '' : `and (r.due, r.uid) ${beside}`}`;
  const others = `select e.uid, ${never}::bigint as key from postern.entry e where ${where} ${besides(`${never}::bigint`)}
    and e.uid in (select uid from postern.recipient where session is not null
      union all select uid from postern.recipient where state = 3
      union all select uid from postern.entry where finished_at is not null)
    and not exists (select 1 from postern.recipient r where r.uid = e.uid and ${waitsFor})`;
  return [waiting, others]
    .map((text) => `(${text} ${place} limit ${offset + limit})`)
    .join(' union all ')
    .concat(` ${place} ${limits}`);
}

/** Answers questions about entries. */
export class EntrySearch {
  readonly #database: SharedDatabase;
  readonly #now: () => number;

  constructor(database: SharedDatabase, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /**
   * The uids that match at one moment, the oldest first.
   *
   * @throws Problem `unavailable` when the database takes too long
   */
  async matching(filter: EntryFilter): Promise<readonly string[]> {
    const { text, values } = this.#condition(filter);
    const uids: string[] = [];
    await inTime(this.#database, async (sql) => {
      await sql.query(
        `declare matching no scroll cursor for select e.uid from postern.entry e where ${text} order by e.queued_at, e.uid`,
        values,
      );
      for (;;) {
        const rows = await sql.query<{ uid: string }>(`fetch ${uidsTogether} from matching`);
        for (const { uid } of rows) uids.push(uid);
        if (rows.length < uidsTogether) return;
      }
    });
    return uids;
  }

  /** Of all entries. Each page is a statement of its own, so that a large queue does not take too long for one. */
  async uids(): Promise<readonly string[]> {
    const uids: string[] = [];
    for (;;) {
      const page = await this.#database.query<{ uid: string }>(
        'pages',
        `select uid from postern.entry where uid > $1 order by uid limit ${uidsTogether}`,
        [uids.at(-1) ?? ''],
      );
      for (const { uid } of page) uids.push(uid);
      if (page.length < uidsTogether) return uids;
    }
  }

  /** @throws Problem `unavailable` when the database takes too long */
  async count(filter: EntryFilter): Promise<number> {
    const { text, values } = this.#condition(filter);
    const [row] = await inTime(this.#database, (sql) =>
      sql.query<{ count: string }>(`select count(*) from postern.entry e where ${text}`, values),
    );
    return Number(row?.count ?? 0);
  }

  #condition(filter: EntryFilter): { readonly text: string; readonly values: readonly unknown[] } {
    const values = new Values();
    return { text: conditionOf(filter, this.#now(), values), values: values.all };
  }

  /**
   * @throws Problem `bad-request` for a cursor that does not belong to this list, `unavailable` when the database takes
   * too long
   */
  async list(options: ListOptions): Promise<EntryPage> {
    const { filter, limit, sort = 'queuedAt', order = 'desc', page = 1 } = options;
    const cursor = options.cursor === undefined ? undefined : decodeCursor(options.cursor, sort, order);
    const isBackwards = cursor?.side === 'prev';
    const by = (order === 'desc') !== isBackwards ? 'desc' : 'asc';
    const { text: where, values } = this.#condition(filter);
    const offset = cursor === undefined ? (page - 1) * limit : 0;
    const at = cursor === undefined ? [] : [cursor.key, cursor.uid];
    const type = typeof cursor?.key === 'number' ? 'bigint' : 'text';
    const besides = (than: string): string =>
      cursor === undefined ? '' : `${than} ($${values.length + 1}::${type}, $${values.length + 2}::text)`;
    const beside = besides(by === 'desc' ? '<' : '>');
    const found = await inTime(this.#database, async (sql) => {
      const keysOf = (stretch: Pick<Stretch, 'by' | 'beside' | 'offset' | 'limit'>) =>
        sql.query<{ uid: string; key: string }>(stretchText({ where, sort, ...stretch }), [...values, ...at]);
      const keys = await keysOf({ by, beside, offset, limit: limit + 1 });
      const opposite = { by: by === 'desc' ? 'asc' : 'desc', beside: besides(by === 'desc' ? '>=' : '<=') } as const;
      const before =
        cursor === undefined ? offset > 0 : (await keysOf({ ...opposite, offset: 0, limit: 1 })).length > 0;
      const isWhole = !before && keys.length <= limit;
      return { keys, before, total: isWhole ? keys.length : await total(sql, where, values) };
    });
    const read = await withoutBadRows<string, StoredRows | undefined>(
      found.keys.slice(0, limit).map(({ uid }) => uid),
      (uids) => inTime(this.#database, (sql) => readEntries(sql, uids, 'read')),
      // The log says which, when it is held.
      () => Promise.resolve(undefined),
    );
    const rows = new Map(read.flatMap((one) => (one === undefined ? [] : [[one.entry.uid, one] as const])));
    return pageOf({ ...found, rows }, { sort, order, limit, isBackwards });
  }
}

/** Whether a statement was ended because of its time. */
export const tookTooLong = (error: unknown): boolean => sqlState(error) === '57014';

/** @throws Problem `unavailable` when the database takes too long */
export async function inTime<T>(database: SharedDatabase, work: (sql: SqlTransaction) => Promise<T>): Promise<T> {
  try {
    return await database.transaction('pages', work);
  } catch (cause) {
    if (!tookTooLong(cause)) throw cause;
    throw problem('unavailable', { detail: 'The database takes too long for this. Add a filter.', cause });
  }
}

async function total(sql: SqlTransaction, where: string, values: readonly unknown[]): Promise<EntryPage['total']> {
  const [row] = await sql.query<{ count: string }>(
    `select count(*) from (select 1 from postern.entry e where ${where} limit ${maxCounted + 1}) counted`,
    values,
  );
  const count = Number(row?.count ?? 0);
  return count > maxCounted ? { least: maxCounted } : count;
}

interface Found {
  readonly keys: readonly { readonly uid: string; readonly key: string }[];
  readonly rows: ReadonlyMap<string, StoredRows>;
  readonly before: boolean;
  readonly total: EntryPage['total'];
}

function pageOf(
  { keys, rows, before, total }: Found,
  {
    sort,
    order,
    limit,
    isBackwards,
  }: Required<Pick<ListOptions, 'sort' | 'order' | 'limit'>> & { isBackwards: boolean },
): EntryPage {
  const isMore = keys.length > limit;
  const shown = keys.slice(0, limit);
  if (isBackwards) shown.reverse();
  const cursorAt = (row: (typeof shown)[number] | undefined, to: 'next' | 'prev', is: boolean): string | null =>
    row === undefined || !is
      ? null
      : encodeCursor([sort, order, sort === 'sender' ? row.key : Number(row.key), row.uid, to]);
  return {
    items: shown.flatMap(({ uid }) => {
      const found = rows.get(uid);
      return found === undefined ? [] : [summaryOf(found.entry)];
    }),
    total,
    nextCursor: cursorAt(shown.at(-1), 'next', isBackwards ? before : isMore),
    prevCursor: cursorAt(shown[0], 'prev', isBackwards ? isMore : before),
  };
}

interface WaitingDestination extends SqlRow {
  readonly destination: string;
  readonly due: string;
  readonly suspect: boolean;
}

/**
 * Every destination with recipients that wait, and when the first is due, some at a time: each is found by one step in an
 * index, however many recipients it has.
 */
export async function* destinationsWithMail(
  database: SharedDatabase,
): AsyncGenerator<readonly WaitingDestination[], void> {
  const waits = (lane: number): string => `state in (1, 2) and lane = ${lane}`;
  const firstDue = `(select min(r.due) from postern.recipient r
    where ${waits(lanes.retry)} and r.destination = step.destination)`;
  for (const [lane, due] of [
    [lanes.new, '0'],
    [lanes.retry, firstDue],
  ] as const) {
    const text = `
      with recursive step as (
        (select destination, 1 as place from postern.recipient where ${waits(lane)} and destination >= $1
         order by destination limit 1)
        union all
        select (select r.destination from postern.recipient r where ${waits(lane)} and r.destination > step.destination
          order by r.destination limit 1), place + 1
        from step where destination is not null and place < $2)
      select destination, ${due} as due, false as suspect from step where destination is not null`;
    let from = '';
    for (let most = destinationsTogether; ;) {
      const found = await database.query<WaitingDestination>('settle', text, [from, most]).catch((error: unknown) => {
        if (!tookTooLong(error) || most <= minTogether) throw error;
        return undefined;
      });
      if (found === undefined) {
        most = Math.ceil(most / 10);
        continue;
      }
      yield found;
      const last = found.at(-1);
      if (last === undefined || found.length < most) break;
      // It is in the next page once more: none is left out, an empty name neither.
      from = last.destination;
    }
  }
  yield await database.query<WaitingDestination>(
    'settle',
    `select destination, due, true as suspect from postern.recipient where ${waits(lanes.suspect)} order by due limit 1`,
  );
}
