import type { OrderKey } from '../maildir/message-entry.js';
import { cutOut } from '../maildir/page.js';
import type { CachedFolder } from './cached-folder.js';
import { entryAt, type FolderRows, hasBit, idAt, rowBits, rowsOf } from './folder-rows.js';
import type * as task from './folder-task.js';
import { filterRows, type SearchResult, searchRows, searchWords } from './row-search.js';
import { TimeSlice } from '../../../core/concurrency.js';

/** Ids per transferred buffer. */
const idsInPiece = 10_000;

/** Answers questions about one folder. Undefined means that there is no such folder. */
export class FolderQueries {
  readonly #folder: CachedFolder;
  readonly #now: number;
  readonly #timeSlice = new TimeSlice();

  constructor(folder: CachedFolder, now: number) {
    this.#folder = folder;
    this.#now = now;
  }

  async totals(): Promise<task.FolderTotals | undefined> {
    const rows = await this.#rows('looked');
    return rows === undefined ? undefined : totalsOf(rows);
  }

  async page(request: task.PageQuestion): Promise<task.FolderSheet | undefined> {
    const rows = await this.#rows('looked');
    if (rows === undefined) return undefined;
    const { rows: found, searchedAll } = await this.#matching(rows, request, request.timeoutMs);
    const list = request.order === 'newest' ? found : found.toReversed();
    const keyAt = (index: number): OrderKey => keyOf(rows, list[index] ?? 0);
    const compare = request.order === 'newest' ? compareNewestFirst : compareOldestFirst;
    const { start, end, nextCursor, prevCursor } = cutOut({ length: list.length, keyAt, compare }, request);
    const items = await this.#summarised(rows, [...list.subarray(start, end)]);
    return { items, total: found.length, nextCursor, prevCursor, searchedAll, totals: totalsOf(rows) };
  }

  async select(filter: task.MessageQuestion): Promise<task.Selected | undefined> {
    const rows = await this.#rows('looked');
    if (rows === undefined) return undefined;
    const found = await this.#matching(rows, filter, Infinity);
    const ids: Uint8Array<ArrayBuffer>[] = [];
    let unread = 0;
    for (let start = 0; start < found.rows.length; start += idsInPiece) {
      const piece = found.rows.subarray(start, start + idsInPiece);
      for (const row of piece) unread += hasBit(rows, row, rowBits.seen) ? 0 : 1;
      ids.push(new TextEncoder().encode([...piece].map((row) => `${idAt(rows, row)}/`).join('')));
      await this.#timeSlice.yieldIfDue();
    }
    return { ids, unread, count: found.rows.length, searchedAll: found.searchedAll };
  }

  async locate(ids: readonly string[], trust: task.Trust): Promise<task.LocatedRows | undefined> {
    const rows = await this.#rows(trust);
    if (rows === undefined) return undefined;
    const entries = rowsOf(rows, ids).map((row) => (row < 0 ? null : entryAt(rows, row)));
    return { entries, quiet: this.#folder.isQuiet };
  }

  async entries(containing: string): Promise<readonly task.FolderAnswers['entries'][number][] | undefined> {
    const rows = await this.#rows('looked');
    if (rows === undefined) return undefined;
    const found: number[] = [];
    for (let row = 0; row < rows.count; row++) {
      if (containing === '' || idAt(rows, row).includes(containing)) found.push(row);
      await this.#timeSlice.yieldIfDue();
    }
    return found.map((row) => entryAt(rows, row));
  }

  async summaries(ids: readonly string[]): Promise<readonly task.SummarisedEntry[] | undefined> {
    const rows = await this.#rows('looked');
    if (rows === undefined) return undefined;
    return this.#summarised(
      rows,
      rowsOf(rows, ids).filter((row) => row >= 0),
    );
  }

  #rows(trust: task.Trust): Promise<FolderRows | undefined> {
    const known = trust === 'known' ? this.#folder.known : undefined;
    return known === undefined ? this.#folder.rows(this.#now, trust === 'read') : Promise.resolve(known);
  }

  async #matching(rows: FolderRows, filter: task.MessageQuestion, timeoutMs: number): Promise<SearchResult> {
    const fitting = filterRows(rows, filter);
    const words = searchWords(filter.q);
    if (words.length === 0) return { rows: fitting, searchedAll: true };
    const deps = { timeSlice: this.#timeSlice, until: performance.now() + timeoutMs };
    return searchRows(this.#folder, rows, fitting, words, deps);
  }

  /** In order; messages that are gone meanwhile are left out. */
  async #summarised(rows: FolderRows, wanted: readonly number[]): Promise<readonly task.SummarisedEntry[]> {
    const found: (task.SummarisedEntry | string)[] = [];
    const heads = this.#folder.heads();
    try {
      for (const row of wanted) {
        const record = this.#folder.summary(rows, row, heads);
        found.push(record === undefined ? idAt(rows, row) : { ...record, entry: entryAt(rows, row) });
        await this.#timeSlice.yieldIfDue();
      }
    } finally {
      heads.close();
    }
    const renamed = found.filter((one) => typeof one === 'string');
    const later = renamed.length === 0 ? undefined : await this.#summarisedLater(renamed);
    return found.map((one) => (typeof one === 'string' ? later?.get(one) : one)).filter((one) => one !== undefined);
  }

  /** Messages that another program has renamed since the names were read. */
  async #summarisedLater(ids: readonly string[]): Promise<ReadonlyMap<string, task.SummarisedEntry>> {
    const found = new Map<string, task.SummarisedEntry>();
    const rows = await this.#rows('read');
    if (rows === undefined) return found;
    const heads = this.#folder.heads();
    try {
      for (const row of rowsOf(rows, ids)) {
        const record = row < 0 ? undefined : this.#folder.summary(rows, row, heads);
        if (record !== undefined) found.set(idAt(rows, row), { ...record, entry: entryAt(rows, row) });
      }
    } finally {
      heads.close();
    }
    return found;
  }
}

/** Cached, since every page shows them. */
const knownTotals = new WeakMap<FolderRows, task.FolderTotals>();

function totalsOf(rows: FolderRows): task.FolderTotals {
  const totals = knownTotals.get(rows) ?? summedUp(rows);
  knownTotals.set(rows, totals);
  return totals;
}

function summedUp(rows: FolderRows): task.FolderTotals {
  let [unread, size] = [0, 0];
  for (let row = 0; row < rows.count; row++) {
    if (!hasBit(rows, row, rowBits.seen)) unread++;
    size += rows.size[row] ?? 0;
  }
  const time = (row: number) => (rows.count === 0 ? null : (rows.receivedAt[row] ?? 0));
  return { total: rows.count, unread, size, oldest: time(rows.count - 1), newest: time(0) };
}

function keyOf(rows: FolderRows, row: number): OrderKey {
  return { receivedAt: rows.receivedAt[row] ?? 0, id: idAt(rows, row) };
}

/** Same order as the rows. */
function compareNewestFirst(a: OrderKey, b: OrderKey): number {
  return b.receivedAt - a.receivedAt || Buffer.compare(Buffer.from(b.id, 'utf8'), Buffer.from(a.id, 'utf8'));
}

const compareOldestFirst = (a: OrderKey, b: OrderKey): number => compareNewestFirst(b, a);
