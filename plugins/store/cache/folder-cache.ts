import { setTimeout as pause } from 'node:timers/promises';
import { CachedFolder, type CacheSite } from './cached-folder.js';
import { FolderQueries } from './folder-queries.js';
import type { FolderAnswers, FolderQuestion } from './folder-task.js';
import { sweepFiles } from './file-sweep.js';

export interface FolderCacheOptions extends CacheSite {
  /** Maximum bytes of memory for all folders together. */
  readonly memoryBytes: number;
  /** Maximum bytes of all files together. */
  readonly diskBytes: number;
}

const maxFolders = 500;
/** Background reading works in slices with pauses, so that other work gets the processor and the disk. */
const fillAfterMs = 50;
const sliceMs = 8;
const pauseMs = 4;
/** Delay before a changed folder is written, and the interval for one that changes all the time. Milliseconds. */
const keepAfterMs = 2000;
const keepEveryMs = 30_000;

interface OpenFolder {
  readonly folder: CachedFolder;
  /** Questions being answered. */
  busy: number;
  /** It stays open, but may be written meanwhile. */
  isFilling: boolean;
  keptAt: number;
  timer: NodeJS.Timeout | undefined;
}

/** The most recently used folders of one site, with a memory limit. */
export class FolderCache {
  readonly #input: FolderCacheOptions;
  /** Least recently used first. */
  readonly #folders = new Map<string, OpenFolder>();
  /** Folders whose missing summaries are to be read, with the time of their questions. */
  readonly #toFill = new Map<string, number>();
  #isFilling = false;
  #isSwept = false;
  #isClosed = false;

  constructor(input: FolderCacheOptions) {
    this.#input = input;
  }

  /** @param now milliseconds since 1970, not later than now */
  async answer(
    path: string,
    question: FolderQuestion,
    now: number,
  ): Promise<FolderAnswers[FolderQuestion['kind']] | undefined> {
    const answer = await this.use(path, (folder) => ask(new FolderQueries(folder, now), question));
    if (question.kind === 'page' || question.kind === 'select') this.fillLater(path, now);
    return answer;
  }

  /** The folder stays open until the work has ended. */
  async use<T>(path: string, work: (folder: CachedFolder) => Promise<T>): Promise<T> {
    const entry = this.#open(path);
    entry.busy++;
    try {
      return await work(entry.folder);
    } finally {
      entry.busy--;
      this.#keepLater(entry);
      this.#makeRoom(entry);
    }
  }

  /** Reads the missing summaries of the folder in the background: a search may follow a page. */
  fillLater(path: string, now: number): void {
    this.#toFill.set(path, now);
    if (!this.#isFilling) void this.#fillAll();
  }

  close(): void {
    this.#isClosed = true;
    for (const entry of this.#folders.values()) this.#shut(entry);
    this.#folders.clear();
  }

  #open(path: string): OpenFolder {
    if (!this.#isSwept && this.#input.files !== null) sweepFiles(this.#input.files, this.#input);
    this.#isSwept = true;
    const entry = this.#folders.get(path) ?? {
      folder: new CachedFolder(this.#input, path),
      busy: 0,
      isFilling: false,
      keptAt: -Infinity,
      timer: undefined,
    };
    this.#folders.delete(path);
    this.#folders.set(path, entry);
    return entry;
  }

  /** One folder after the other. */
  async #fillAll(): Promise<void> {
    this.#isFilling = true;
    await pause(fillAfterMs);
    for (const [path, now] of this.#toFill) {
      this.#toFill.delete(path);
      if (this.#isClosed) break;
      const entry = this.#open(path);
      entry.isFilling = true;
      try {
        await this.#fill(entry.folder, now);
      } catch {
        // The next question reports that the folder cannot be read.
      }
      entry.isFilling = false;
      this.#keepLater(entry);
      this.#makeRoom(entry);
    }
    this.#isFilling = false;
  }

  async #fill(folder: CachedFolder, now: number): Promise<void> {
    if (folder.known === undefined) await folder.rows(now, false);
    for (let row = 0; !this.#isClosed;) {
      const rows = folder.known;
      if (rows === undefined || row >= rows.count) break;
      const heads = folder.heads();
      const until = performance.now() + sliceMs;
      try {
        for (; row < rows.count && performance.now() < until; row++) {
          if (rows.summary[row] !== 0) continue;
          folder.readMessage(rows, row, heads);
        }
      } finally {
        heads.close();
      }
      await pause(pauseMs);
      if (folder.known !== rows) row = 0;
      if (folder.log.isFull) break;
    }
  }

  #keepLater(entry: OpenFolder): void {
    if (this.#isClosed || this.#input.files === null) return;
    const wait = Math.max(keepAfterMs, entry.keptAt + keepEveryMs - performance.now());
    entry.timer ??= setTimeout(() => this.#keep(entry), wait);
  }

  #keep(entry: OpenFolder): void {
    entry.timer = undefined;
    if (entry.busy > 0) return this.#keepLater(entry);
    entry.keptAt = performance.now();
    try {
      entry.folder.keep();
    } catch {
      // A cache file that cannot be written is only a cache miss.
    }
  }

  #makeRoom(latest: OpenFolder): void {
    let memory = 0;
    for (const { folder } of this.#folders.values()) memory += folder.memory;
    for (const [path, entry] of this.#folders) {
      if (memory <= this.#input.memoryBytes && this.#folders.size <= maxFolders) return;
      if (entry === latest || entry.busy > 0 || entry.isFilling) continue;
      memory -= entry.folder.memory;
      this.#folders.delete(path);
      this.#shut(entry);
    }
  }

  #shut(entry: OpenFolder): void {
    clearTimeout(entry.timer);
    this.#keep(entry);
    clearTimeout(entry.timer);
    entry.folder.close();
  }
}

function ask(
  queries: FolderQueries,
  question: FolderQuestion,
): Promise<FolderAnswers[FolderQuestion['kind']] | undefined> {
  if (question.kind === 'totals') return queries.totals();
  if (question.kind === 'page') return queries.page(question.request);
  if (question.kind === 'select') return queries.select(question.filter);
  if (question.kind === 'locate') return queries.locate(question.ids, question.trust);
  if (question.kind === 'entries') return queries.entries(question.containing);
  return queries.summaries(question.ids);
}
