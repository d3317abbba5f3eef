import { TimeSlice } from '../../../core/concurrency.js';
import type { OrderKey } from '../maildir/message-entry.js';
import type { CachedFolder } from './cached-folder.js';
import type { FolderCache } from './folder-cache.js';
import { FolderQueries } from './folder-queries.js';
import { type FolderRows, idAt } from './folder-rows.js';
import type { FoundInFolder, FoundInFolders, FoldersQuestion } from './folder-task.js';
import { filterRows, searchRows, searchWords } from './row-search.js';

/** Time for unread messages of one folder before every folder was searched once. Milliseconds. */
const firstReadMs = 2;

/** A match: the folder as an index, and the message. */
interface Match extends OrderKey {
  readonly folder: number;
}

/**
 * Searches many folders: first what is known of each, then, until the time is up, messages that were never read. Folders
 * that it has not finished are read in the background.
 */
export class FolderSearch {
  readonly #cache: FolderCache;
  readonly #question: FoldersQuestion;
  readonly #words: readonly string[];
  readonly #now: number;
  readonly #timeSlice = new TimeSlice();
  /** Matches of each folder, by its index. */
  readonly #totals = new Map<number, number>();
  /** Of all folders, newest first. */
  #newest: Match[] = [];

  /** @param now milliseconds since 1970, not later than now */
  constructor(cache: FolderCache, question: FoldersQuestion, now: number) {
    this.#cache = cache;
    this.#question = question;
    this.#words = searchWords(question.q);
    this.#now = now;
  }

  async run(): Promise<FoundInFolders> {
    const until = performance.now() + this.#question.timeoutMs;
    const unfinished = new Set(this.#question.folders.keys());
    for (const readMs of [firstReadMs, Infinity]) {
      for (const index of unfinished) {
        if (performance.now() >= until) break;
        if (await this.#look(index, Math.min(until, performance.now() + readMs))) unfinished.delete(index);
      }
    }
    for (const index of unfinished) this.#cache.fillLater(this.#pathOf(index), this.#now);
    const total = [...this.#totals.values()].reduce((sum, count) => sum + count, 0);
    return { items: await this.#items(), total, unfinished: [...unfinished] };
  }

  /** True when the whole folder was searched, or is gone; an unreadable one stays unfinished. */
  async #look(index: number, until: number): Promise<boolean> {
    try {
      return await this.#cache.use(this.#pathOf(index), (folder) => this.#lookInto(folder, index, until));
    } catch {
      return false;
    }
  }

  async #lookInto(folder: CachedFolder, index: number, until: number): Promise<boolean> {
    const rows = await folder.rows(this.#now, false);
    if (rows === undefined) return true;
    const deps = { timeSlice: this.#timeSlice, until };
    const found = await searchRows(folder, rows, filterRows(rows, {}), this.#words, deps);
    this.#totals.set(index, found.rows.length);
    this.#newest = this.#newest.filter((match) => match.folder !== index);
    this.#take(index, rows, found.rows);
    return found.searchedAll;
  }

  #take(folder: number, rows: FolderRows, found: Uint32Array): void {
    const { limit } = this.#question;
    const oldest = this.#newest.length < limit ? -Infinity : (this.#newest.at(-1)?.receivedAt ?? -Infinity);
    for (const row of found.subarray(0, limit)) {
      const receivedAt = rows.receivedAt[row] ?? 0;
      if (receivedAt < oldest) break;
      this.#newest.push({ folder, receivedAt, id: idAt(rows, row) });
    }
    this.#newest = this.#newest.toSorted(compareMatches).slice(0, limit);
  }

  async #items(): Promise<readonly FoundInFolder[]> {
    const found = new Map<string, FoundInFolder>();
    for (const folder of new Set(this.#newest.map((match) => match.folder))) {
      const ids = this.#newest.filter((match) => match.folder === folder).map(({ id }) => id);
      const items = await this.#cache
        .use(this.#pathOf(folder), (cached) => new FolderQueries(cached, this.#now).summaries(ids))
        .catch(() => undefined);
      for (const item of items ?? []) found.set(`${folder}/${item.entry.id}`, { folder, ...item });
    }
    return this.#newest.map(({ folder, id }) => found.get(`${folder}/${id}`)).filter((item) => item !== undefined);
  }

  #pathOf(index: number): string {
    return this.#question.folders[index] ?? '';
  }
}

function compareMatches(a: Match, b: Match): number {
  return b.receivedAt - a.receivedAt || a.folder - b.folder || (a.id < b.id ? 1 : -1);
}
