import { constants } from 'node:fs';
import type { FileLayer } from '../disk/file-layer.js';

const { O_CREAT, O_DSYNC, O_EXCL, O_WRONLY } = constants;

/**
 * What becomes of the bytes: `durable` files answer a write when all that is needed to read it again is on the disk (O_DSYNC, open(2)),
 * which saves an fsync and the thread that waits for it.
 */
const flags = {
  plain: O_CREAT | O_EXCL | O_WRONLY,
  durable: O_CREAT | O_EXCL | O_WRONLY | O_DSYNC,
} as const;

export type NewFileKind = keyof typeof flags;

interface FilePoolOptions {
  readonly files: FileLayer;
  /** What nearly all of them are. */
  readonly kind: NewFileKind;
  /** Several messages are on their way to their places. */
  readonly isConcurrent: () => boolean;
  /** A path in the spool that nobody has had. */
  readonly freshPath: () => string;
}

/** Makes the files of the spool, the way that holds up the fewest: at once by a call that blocks, by a thread, or by a thread ahead of the need. */
export class FilePool {
  readonly #input: FilePoolOptions;
  readonly #ready: PrecreatedFiles;
  readonly #cost = new CallCost();

  constructor(input: FilePoolOptions) {
    this.#input = input;
    this.#ready = new PrecreatedFiles({ ...input, flags: flags[input.kind] });
  }

  /** An empty file, open for writing; `path` when it is to have that name. Throws what the system says. */
  async create(kind: NewFileKind, path?: string): Promise<OpenFile> {
    const { files, isConcurrent, freshPath } = this.#input;
    const isDear = this.#cost.isSlow();
    const isBusy = isConcurrent();
    const mayBeReady = path === undefined && kind === this.#input.kind;
    const ready = mayBeReady && (isBusy || isDear) ? this.#ready.take() : undefined;
    if (ready !== undefined) return ready;
    const own = path ?? freshPath();
    // What makes files durable holds up whoever creates one.
    const mayBlock = !isDear && (kind === 'plain' || !isBusy);
    const open = (): Promise<number> => files[mayBlock ? 'openNow' : 'open'](own, flags[kind], 0o600);
    return { path: own, fd: await (mayBlock ? this.#cost.measure(open) : open()) };
  }

  close(): Promise<void> {
    return this.#ready.close();
  }
}

/** A file that is empty and nobody's yet. */
interface OpenFile {
  readonly path: string;
  readonly fd: number;
}

interface PrecreatedFilesOptions {
  readonly files: FileLayer;
  /** A path in the spool that nobody has had. */
  readonly freshPath: () => string;
  /** What they are opened with; `open(2)`. */
  readonly flags: number;
  /** At most so many are kept ready. */
  readonly most?: number;
  readonly windowMs?: number;
}

const usual = { most: 64, windowMs: 1000 };
/** Threads have other work too. */
const maxConcurrent = 4;
/** A server that takes fewer messages in a window creates their files as they come. */
const worthwhile = 16;

/**
 * Files of the spool that threads have created ahead: where names come and go a file system may look long for a free inode,
 * and nobody should wait for that. There are as many as the last second may want in its eighth part; none on a quiet server.
 */
export class PrecreatedFiles {
  readonly #input: PrecreatedFilesOptions & typeof usual;
  readonly #ready: OpenFile[] = [];
  #creating = 0;
  #wanted = 0;
  #target = 0;
  #window: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(input: PrecreatedFilesOptions) {
    this.#input = { ...usual, ...input };
  }

  /** Undefined when none is ready: the caller creates his own. */
  take(): OpenFile | undefined {
    if (this.#closed) return undefined;
    this.#wanted += 1;
    this.#window ??= setInterval(() => this.#look(), this.#input.windowMs).unref();
    const file = this.#ready.pop();
    this.#fill();
    return file;
  }

  /** Once in a window. */
  #look(): void {
    const { most } = this.#input;
    this.#target = this.#wanted < worthwhile ? 0 : Math.min(most, Math.ceil(this.#wanted / 8));
    if (this.#wanted === 0) {
      clearInterval(this.#window);
      this.#window = undefined;
    }
    this.#wanted = 0;
    while (this.#ready.length > this.#target) void this.#drop(this.#ready.pop());
    this.#fill();
  }

  #fill(): void {
    while (this.#creating < maxConcurrent && this.#creating + this.#ready.length < this.#target) {
      this.#creating += 1;
      void this.#create();
    }
  }

  /** A disk that refuses is not asked again before the next message. */
  async #create(): Promise<void> {
    const { files, freshPath, flags } = this.#input;
    const path = freshPath();
    try {
      const file = { path, fd: await files.open(path, flags, 0o600) };
      this.#creating -= 1;
      if (this.#closed) return await this.#drop(file);
      this.#ready.push(file);
      this.#fill();
    } catch {
      this.#creating -= 1;
    }
  }

  async #drop(file: OpenFile | undefined): Promise<void> {
    if (file === undefined) return;
    const { files } = this.#input;
    await files.close(file.fd).catch(() => undefined);
    // What cannot be removed now the next start removes.
    await files.unlink(file.path).catch(() => undefined);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#window);
    await Promise.all(this.#ready.splice(0).map((file) => this.#drop(file)));
  }
}

/** A call that takes longer costs less in a thread, the waking of the thread included. */
const slowMicros = 100;
/** One measurement has so much weight and counts for no more than that: the processor may have been taken away in the middle of it. */
const weight = 1 / 32;
const maxMicros = 250;
/** While blocking is dear, one call in so many blocks all the same, to see whether it still is. */
const trialEvery = 64;

/** What a call that blocks has cost lately: a file system may look long for a free inode where many were removed. */
export class CallCost {
  readonly #now: () => number;
  #micros = 0;
  #asked = 0;

  /** @param now milliseconds, with their fractions, from whenever */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** True when a thread should make the next call; asked once for each. */
  isSlow(): boolean {
    if (this.#micros < slowMicros) return false;
    this.#asked += 1;
    return this.#asked % trialEvery !== 0;
  }

  /** Makes the call, which is over when it returns. */
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

/** Behind this many the callers wait, so that the list cannot grow without end. */
const maxPending = 1000;
const parallel = 2;

/** Removes spool entries off the critical path, in order. */
export class FileRemover {
  readonly #remove: (path: string) => Promise<void>;
  readonly #paths: string[] = [];
  #waiting: (() => void)[] = [];
  #running = 0;

  /** @param remove never rejects */
  constructor(remove: (path: string) => Promise<void>) {
    this.#remove = remove;
  }

  add(path: string): Promise<void> | undefined {
    this.#paths.push(path);
    if (this.#running < parallel) void this.#run();
    return this.#paths.length < maxPending ? undefined : this.idle();
  }

  /** Resolves when everything that was added is gone. */
  idle(): Promise<void> {
    if (this.#running === 0) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  async #run(): Promise<void> {
    this.#running += 1;
    for (let path = this.#paths.shift(); path !== undefined; path = this.#paths.shift()) await this.#remove(path);
    this.#running -= 1;
    if (this.#running > 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
