import type { SharedDatabase, SqlTransaction } from '../../../core/contracts/cluster.js';
import { type EntryState, openStates } from '../../../core/contracts/queue-entry.js';
import type { EntryFilter, EntryPage, EntrySort, ListOptions } from '../../../core/contracts/relay-queue.js';
import { type DecodedCursor, decodeCursor, encodeCursor, never, statesOf, summaryOf } from '../queue/entry-list.js';
import { numberOf, readEntries, searchable, type StoredRows } from './entry-rows.js';

/** Of one statement when all are read. */
const uidsTogether = 10_000;

/** A condition on the table `e` of entries, with its values. */
interface Condition {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** Numbers values as it goes: no value is ever part of a statement. */
class Values {
  readonly all: unknown[] = [];

  /** The place of the value in the statement. */
  add(value: unknown): string {
    this.all.push(value);
    return `$${this.all.length}`;
  }
}

/** Pattern of a text that may be anywhere in another one. */
const anywhere = (text: string): string => `%${literal(text)}%`;
const literal = (text: string): string => searchable(text).replaceAll(/[\\%_]/g, String.raw`\$&`);

function conditionOf(filter: EntryFilter, now: number, values: Values): string {
  const tests = [stateTest(statesOf(filter), values)];
  const momentOf = (age: number | string): number =>
    Math.floor(typeof age === 'number' ? now - age * 1000 : Date.parse(age));
  const { olderThan, youngerThan, since, minAttempts, sender, q } = filter;
  if (olderThan !== undefined) tests.push(`e.queued_at <= ${values.add(momentOf(olderThan))}`);
  if (youngerThan !== undefined) tests.push(`e.queued_at > ${values.add(momentOf(youngerThan))}`);
  if (since !== undefined) tests.push(`e.queued_at >= ${values.add(momentOf(since))}`);
  if (minAttempts !== undefined) {
    tests.push(
      `(select max(r.attempts) from postern.recipient r where r.uid = e.uid) >= ${values.add(Math.ceil(minAttempts))}`,
    );
  }
  if (sender === '<>') tests.push('e.sender is null');
  else if (sender !== undefined) tests.push(addressTest('e.sender', sender, values));
  const recipients = recipientTest(filter, values);
  if (recipients !== undefined) {
    tests.push(`exists (select 1 from postern.recipient r where r.uid = e.uid and ${recipients})`);
  }
  if (q !== undefined && q !== '') tests.push(wordTest(q, values));
  return tests.join(' and ');
}

function stateTest(states: ReadonlySet<EntryState>, values: Values): string {
  const isOpen = openStates.every((state) => states.has(state));
  const isFinished = [...states].some((state) => !(openStates as readonly string[]).includes(state));
  if (isOpen && !isFinished) return 'e.finished_at is null';
  const numbers = values.add([...states].map(numberOf));
  const own = `(select min(r.state) from postern.recipient r where r.uid = e.uid) = any(${numbers}::smallint[])`;
  if (isFinished) return own;
  return `e.finished_at is null and ${own}`;
}

function addressTest(column: string, wanted: string, values: Values): string {
  const lower = wanted.toLowerCase();
  if (!lower.startsWith('@')) return `lower(${column}) = ${values.add(searchable(lower))}`;
  return `lower(${column}) like ${values.add(`%${literal(lower)}`)}`;
}

/** Criteria of recipients must all match the same one; but for an address, an open one, unless all are finished. */
function recipientTest({ domain, destination, reason, recipient }: EntryFilter, values: Values): string | undefined {
  const tests: string[] = [];
  if (destination !== undefined) tests.push(`r.destination = ${values.add(searchable(destination.toLowerCase()))}`);
  if (domain !== undefined) tests.push(addressTest('r.address', `@${domain}`, values));
  if (reason !== undefined) tests.push(`lower(r.reason) = ${values.add(searchable(reason.toLowerCase()))}`);
  if (tests.length > 0) tests.push(`(e.finished_at is not null or r.state <= ${numberOf('held')})`);
  if (recipient !== undefined) tests.push(addressTest('r.address', recipient, values));
  return tests.length === 0 ? undefined : tests.join(' and ');
}

function wordTest(q: string, values: Values): string {
  const word = values.add(anywhere(q));
  const said = /^\d/.test(q) ? "concat_ws(' ', r.code, r.status, r.reply)" : 'r.reply';
  const inEntry = ['e.uid', 'e.sender', 'e.subject', 'e.message_id'].map((column) => `${column} ilike ${word}`);
  const inRecipient = `exists (select 1 from postern.recipient r where r.uid = e.uid and (r.address ilike ${word} or ${said} ilike ${word}))`;
  return `(${[...inEntry, inRecipient].join(' or ')})`;
}

const sortKeys: Readonly<Record<EntrySort, string>> = {
  queuedAt: 'e.queued_at',
  nextAttempt: `coalesce((select min(r.due) from postern.recipient r where r.uid = e.uid and r.state in (1, 2)), ${never})`,
  lastAttempt: `coalesce(e.last_attempt, ${never})`,
  expiresAt: 'e.expires_at',
  size: 'e.size',
  attempts: '(select max(r.attempts)::bigint from postern.recipient r where r.uid = e.uid)',
  sender: `coalesce(lower(e.sender), '') collate "C"`,
};

/** Beyond it, entries are not counted. */
const maxCounted = 100_000;

/** Answers questions about entries. */
export class EntrySearch {
  readonly #database: SharedDatabase;
  readonly #now: () => number;

  constructor(database: SharedDatabase, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** The uids that match, the oldest first. */
  async matching(filter: EntryFilter): Promise<readonly string[]> {
    const { text, values } = this.#condition(filter);
    const rows = await this.#database.query<{ uid: string }>(
      'pages',
      `select e.uid from postern.entry e where ${text} order by e.queued_at, e.uid`,
      values,
    );
    return rows.map(({ uid }) => uid);
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
      uids.push(...page.map(({ uid }) => uid));
      if (page.length < uidsTogether) return uids;
    }
  }

  async count(filter: EntryFilter): Promise<number> {
    const { text, values } = this.#condition(filter);
    const [row] = await this.#database.query<{ count: string }>(
      'pages',
      `select count(*) from postern.entry e where ${text}`,
      values,
    );
    return Number(row?.count ?? 0);
  }

  #condition(filter: EntryFilter): Condition {
    const values = new Values();
    return { text: conditionOf(filter, this.#now(), values), values: values.all };
  }

  /** @throws Problem `bad-request` for a cursor that does not belong to this list */
  async list(options: ListOptions): Promise<EntryPage> {
    const { filter, limit, sort = 'queuedAt', order = 'desc', page = 1 } = options;
    const cursor = options.cursor === undefined ? undefined : decodeCursor(options.cursor, sort, order);
    const values = new Values();
    const where = conditionOf(filter, this.#now(), values);
    const isBackwards = cursor?.side === 'prev';
    const descends = (order === 'desc') !== isBackwards;
    const skipped = cursor === undefined ? (page - 1) * limit : 0;
    const beside = cursor === undefined ? 'true' : besideTest(sortKeys[sort], cursor, descends, values);
    const by = descends ? 'desc' : 'asc';
    const counted = [...values.all];
    const found = await this.#database.transaction('pages', async (sql) => {
      const keys = await sql.query<{ uid: string; key: string }>(
        `select e.uid, ${sortKeys[sort]} as key from postern.entry e where ${where} and ${beside}
         order by key ${by}, e.uid collate "C" ${by} offset ${skipped} limit ${limit + 1}`,
        values.all,
      );
      const shown = keys.slice(0, limit);
      const rows = await readEntries(
        sql,
        shown.map(({ uid }) => uid),
        'read',
      );
      const before = cursor === undefined ? skipped > 0 : await exists(sql, `${where} and not (${beside})`, counted);
      return {
        keys,
        rows: new Map(rows.map((one) => [one.entry.uid, one])),
        before,
        total: await this.#total(sql, filter),
      };
    });
    return pageOf(found, { sort, order, limit, isBackwards });
  }

  async #total(sql: SqlTransaction, filter: EntryFilter): Promise<number> {
    const { text, values } = this.#condition(filter);
    const [row] = await sql.query<{ count: string }>(
      `select count(*) from (select 1 from postern.entry e where ${text} limit ${maxCounted + 1}) counted`,
      values,
    );
    return Number(row?.count ?? 0);
  }
}

function besideTest(key: string, { key: at, uid }: DecodedCursor, descends: boolean, values: Values): string {
  const place = values.add(at);
  const type = typeof at === 'number' ? 'bigint' : 'text';
  return `(${key}, e.uid collate "C") ${descends ? '<' : '>'} (${place}::${type}, ${values.add(uid)}::text)`;
}

async function exists(sql: SqlTransaction, where: string, values: readonly unknown[]): Promise<boolean> {
  const [row] = await sql.query<{ is: boolean }>(
    `select exists (select 1 from postern.entry e where ${where}) as is`,
    values,
  );
  return row?.is === true;
}

interface Found {
  readonly keys: readonly { readonly uid: string; readonly key: string }[];
  readonly rows: ReadonlyMap<string, StoredRows>;
  readonly before: boolean;
  readonly total: number;
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

/**
 * Every destination with recipients that wait, and when the first is due: each is found by one step in an index, however
 * many recipients it has.
 */
export async function destinationsWithMail(
  database: SharedDatabase,
): Promise<readonly { readonly destination: string; readonly due: string; readonly suspect: boolean }[]> {
  const steps = (lane: number) => `
    (with recursive step as (
      (select destination from postern.recipient where state in (1, 2) and lane = ${lane} order by destination limit 1)
      union all
      select (select r.destination from postern.recipient r
        where r.state in (1, 2) and r.lane = ${lane} and r.destination > step.destination order by r.destination limit 1)
      from step where step.destination is not null)
    select destination from step where destination is not null)`;
  return database.query(
    'settle',
    `select d.destination, 0 as due, false as suspect from ${steps(0)} d
     union all
     select d.destination, (select min(r.due) from postern.recipient r
       where r.state in (1, 2) and r.lane = 1 and r.destination = d.destination), false from ${steps(1)} d
     union all
     select * from (select destination, due, true from postern.recipient where state in (1, 2) and lane = 2 order by due limit 1) s`,
  );
}
