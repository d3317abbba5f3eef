import { constants } from 'node:fs';
import { PendingWork, Semaphore } from '../concurrency.js';
import type { FileLayer } from '../disk/file-layer.js';

const { O_CREAT, O_DSYNC, O_EXCL, O_WRONLY } = constants;

/**
 * A write to a `durable` file returns when its data is on the disk (O_DSYNC, open(2)): saves an fsync and its thread.
 */
const flags = {
  plain: O_CREAT | O_EXCL | O_WRONLY,
  durable: O_CREAT | O_EXCL | O_WRONLY | O_DSYNC,
} as const;

export type NewFileKind = keyof typeof flags;

interface FilePoolOptions {
  readonly files: FileLayer;
  /** Kind of the files that are created ahead. */
  readonly kind: NewFileKind;
  /** Several messages are being made durable. */
  readonly isConcurrent: () => boolean;
  /** A new path in the spool. */
  readonly newPath: () => string;
}

interface OpenFile {
  readonly path: string;
  readonly fd: number;
}

/** Creates files synchronously, on the thread pool, or ahead of the need. */
export class FilePool {
  readonly #options: FilePoolOptions;
  readonly #precreated: PrecreatedFiles;
  readonly #cost = new CallCost();

  constructor(options: FilePoolOptions) {
    this.#options = options;
    this.#precreated = new PrecreatedFiles({ ...options, flags: flags[options.kind] });
  }

  /** An empty file, open for writing; a file created ahead has its own path. Throws system errors. */
  async create(kind: NewFileKind, wantedPath?: string): Promise<OpenFile> {
    const { files, isConcurrent, newPath } = this.#options;
    const isSlow = this.#cost.isSlow();
    const isBusy = isConcurrent();
    const mayBePrecreated = wantedPath === undefined && kind === this.#options.kind;
    const precreated = mayBePrecreated && (isBusy || isSlow) ? this.#precreated.take() : undefined;
    if (precreated !== undefined) return precreated;
    const path = wantedPath ?? newPath();
    // Creating a durable file waits for the fsyncs of others.
    const mayBlock = !isSlow && (kind === 'plain' || !isBusy);
    const open = (): Promise<number> => files[mayBlock ? 'openNow' : 'open'](path, flags[kind], 0o600);
    return { path, fd: await (mayBlock ? this.#cost.measure(open) : open()) };
  }

  close(): Promise<void> {
    return this.#precreated.close();
  }
}

interface PrecreatedFilesOptions {
  readonly files: FileLayer;
  readonly newPath: () => string;
  /** Flags of open(2). */
  readonly flags: number;
  readonly maxFiles?: number;
  readonly windowMs?: number;
}

const defaults = { maxFiles: 64, windowMs: 1000 };
/** With fewer files taken in a window, none are created ahead. */
const minTaken = 16;

/**
 * Files that threads create ahead, since a file system with many removed files may search long for a free inode. Keeps
 * an eighth of the number that was taken in the last window, and none on a quiet server.
 */
export class PrecreatedFiles {
  readonly #options: PrecreatedFilesOptions & typeof defaults;
  readonly #available: OpenFile[] = [];
  #isCreating = false;
  #taken = 0;
  #target = 0;
  #window: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: PrecreatedFilesOptions) {
    this.#options = { ...defaults, ...options };
  }

  /** Undefined when none is available: the caller creates one. */
  take(): OpenFile | undefined {
    if (this.#isClosed) return undefined;
    this.#taken += 1;
    this.#window ??= setInterval(() => this.#endWindow(), this.#options.windowMs).unref();
    const file = this.#available.pop();
    this.#fill();
    return file;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#window);
    await Promise.all(this.#available.splice(0).map((file) => this.#discard(file)));
  }

  #endWindow(): void {
    this.#target = this.#taken < minTaken ? 0 : Math.min(this.#options.maxFiles, Math.ceil(this.#taken / 8));
    if (this.#taken === 0) {
      clearInterval(this.#window);
      this.#window = undefined;
    }
    this.#taken = 0;
    for (const file of this.#available.splice(this.#target)) void this.#discard(file);
    this.#fill();
  }

  /** Half of them at a time: to wake a thread for each file costs more than the file. */
  #fill(): void {
    if (this.#isCreating || this.#available.length >= this.#target / 2) return;
    this.#isCreating = true;
    void this.#create().finally(() => (this.#isCreating = false));
  }

  /**
   * Until there are enough, one after the other: a folder takes one new file at a time, so that more threads wait for each
   * other. After a failure nothing is created before the next `take`.
   */
  async #create(): Promise<void> {
    const { files, newPath, flags } = this.#options;
    try {
      while (!this.#isClosed && this.#available.length < this.#target) {
        const path = newPath();
        const file = { path, fd: await files.open(path, flags, 0o600) };
        if (this.#isClosed) return await this.#discard(file);
        this.#available.push(file);
      }
    } catch {
      return;
    }
  }

  /** The next start removes a file that cannot be removed now. */
  async #discard({ path, fd }: OpenFile): Promise<void> {
    const { files } = this.#options;
    await files.close(fd).catch(() => undefined);
    await files.unlink(path).catch(() => undefined);
  }
}

/** A call that takes longer is cheaper on a thread, including the time to wake the thread. */
const slowMicros = 100;
/** Weight of one measurement, and its upper bound: the process may have been preempted during the call. */
const weight = 1 / 32;
const maxMicros = 250;
/** While calls are slow, one in this many blocks all the same, to measure again. */
const trialEvery = 64;

/** Moving average of the time that a blocking call takes. */
export class CallCost {
  readonly #now: () => number;
  #micros = 0;
  #slowCalls = 0;

  /** @param now milliseconds with fractions, from any origin */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** True when the next call should run on a thread; to be asked once for each call. */
  isSlow(): boolean {
    if (this.#micros < slowMicros) return false;
    this.#slowCalls += 1;
    return this.#slowCalls % trialEvery !== 0;
  }

  /** Runs a synchronous call. */
  measure<T>(call: () => T): T {
    const began = this.#now();
    try {
      return call();
    } finally {
      const micros = Math.min((this.#now() - began) * 1000, maxMicros);
      this.#micros += (micros - this.#micros) * weight;
    }
  }
}

/** With more files to remove, callers wait. */
const maxPending = 1000;
const maxRemoving = 2;

/** Removes files in the background, in order. */
export class FileRemover {
  readonly #remove: (path: string) => Promise<void>;
  readonly #removing = new Semaphore(maxRemoving);
  readonly #pending = new PendingWork();

  /** @param remove never rejects */
  constructor(remove: (path: string) => Promise<void>) {
    this.#remove = remove;
  }

  /** A promise when the caller should wait. */
  add(path: string): Promise<void> | undefined {
    void this.#pending.track(this.#run(path));
    return this.#pending.count < maxPending ? undefined : this.idle();
  }

  /** Resolves when all files are removed. */
  idle(): Promise<void> {
    return this.#pending.idle();
  }

  async #run(path: string): Promise<void> {
    await this.#removing.acquire();
    await this.#remove(path);
    this.#removing.release();
  }
}
