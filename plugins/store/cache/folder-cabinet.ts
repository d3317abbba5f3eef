import { setTimeout as pause } from 'node:timers/promises';
import { CachedFolder, type CacheSite } from './cached-folder.js';
import { FolderDesk } from './folder-desk.js';
import type { FolderAnswers, FolderQuestion } from './folder-task.js';
import { sweepFiles } from './file-sweep.js';

export interface CabinetInput extends CacheSite {
  /** Maximum bytes of memory for all folders together. */
  readonly memoryBytes: number;
  /** Maximum bytes of all files together. */
  readonly diskBytes: number;
}

const mostFolders = 500;
/** Background reading works in slices with pauses, so that other work gets the processor and the disk. */
const fillAfterMs = 50;
const sliceMs = 8;
const pauseMs = 4;
/** Delay before a changed folder is written, and the interval for one that changes all the time. Milliseconds. */
const keepAfterMs = 2000;
const keepEveryMs = 30_000;

interface Drawer {
  readonly folder: CachedFolder;
  /** Questions being answered. */
  busy: number;
  isFilling: boolean;
  keptAt: number;
  timer: NodeJS.Timeout | undefined;
}

/** The most recently used folders of one site, with a memory limit. */
export class FolderCabinet {
  readonly #input: CabinetInput;
  /** Least recently used first. */
  readonly #drawers = new Map<string, Drawer>();
  #isSwept = false;
  #isClosed = false;

  constructor(input: CabinetInput) {
    this.#input = input;
  }

  /** @param now milliseconds since 1970, not later than now */
  async answer(
    path: string,
    question: FolderQuestion,
    now: number,
  ): Promise<FolderAnswers[FolderQuestion['kind']] | undefined> {
    const drawer = this.#open(path);
    drawer.busy++;
    try {
      const answer = await ask(new FolderDesk(drawer.folder, now), question);
      if (question.kind === 'page' || question.kind === 'select') void this.#fill(drawer);
      return answer;
    } finally {
      drawer.busy--;
      this.#keepLater(drawer);
      this.#makeRoom(drawer);
    }
  }

  close(): void {
    this.#isClosed = true;
    for (const drawer of this.#drawers.values()) this.#shut(drawer);
    this.#drawers.clear();
  }

  #open(path: string): Drawer {
    if (!this.#isSwept && this.#input.files !== null) sweepFiles(this.#input.files, this.#input);
    this.#isSwept = true;
    const drawer = this.#drawers.get(path) ?? {
      folder: new CachedFolder(this.#input, path),
      busy: 0,
      isFilling: false,
      keptAt: -Infinity,
      timer: undefined,
    };
    this.#drawers.delete(path);
    this.#drawers.set(path, drawer);
    return drawer;
  }

  /** Reads the missing summaries: a search may follow a page. */
  async #fill(drawer: Drawer): Promise<void> {
    if (drawer.isFilling) return;
    drawer.isFilling = true;
    const { folder } = drawer;
    try {
      await pause(fillAfterMs);
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
    } finally {
      drawer.isFilling = false;
      this.#keepLater(drawer);
    }
  }

  #keepLater(drawer: Drawer): void {
    if (this.#isClosed || this.#input.files === null) return;
    const wait = Math.max(keepAfterMs, drawer.keptAt + keepEveryMs - performance.now());
    drawer.timer ??= setTimeout(() => this.#keep(drawer), wait);
  }

  #keep(drawer: Drawer): void {
    drawer.timer = undefined;
    if (drawer.busy > 0) return this.#keepLater(drawer);
    drawer.keptAt = performance.now();
    try {
      drawer.folder.keep();
    } catch {
      // A cache file that cannot be written is only a cache miss.
    }
  }

  #makeRoom(latest: Drawer): void {
    let memory = 0;
    for (const { folder } of this.#drawers.values()) memory += folder.memory;
    for (const [path, drawer] of this.#drawers) {
      if (memory <= this.#input.memoryBytes && this.#drawers.size <= mostFolders) return;
      if (drawer === latest || drawer.busy > 0 || drawer.isFilling) continue;
      memory -= drawer.folder.memory;
      this.#drawers.delete(path);
      this.#shut(drawer);
    }
  }

  #shut(drawer: Drawer): void {
    clearTimeout(drawer.timer);
    this.#keep(drawer);
    clearTimeout(drawer.timer);
    drawer.folder.close();
  }
}

function ask(desk: FolderDesk, question: FolderQuestion): Promise<FolderAnswers[FolderQuestion['kind']] | undefined> {
  if (question.kind === 'totals') return desk.totals();
  if (question.kind === 'page') return desk.page(question.request);
  if (question.kind === 'select') return desk.select(question.filter);
  if (question.kind === 'locate') return desk.locate(question.ids, question.trust);
  if (question.kind === 'entries') return desk.entries(question.containing);
  return desk.summaries(question.ids);
}
