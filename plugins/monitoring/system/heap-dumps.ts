import { constants, createReadStream } from 'node:fs';
import { chmod, lstat, mkdir, open, readdir, rename, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { getHeapStatistics, writeHeapSnapshot } from 'node:v8';
import type { Clock } from '../../../core/clock.js';
import type { StallWatch } from '../../../core/contracts/stall-watch.js';
import { uniqueId } from '../../../core/disk/id.js';
import { filesNamed, type OwnEntry } from '../../../core/host/unknown-entries.js';
import type { ByteSource } from '../../../core/http/endpoint.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';

export interface HeapDump {
  readonly file: string;
  /** Bytes. */
  readonly size: number;
  readonly created: string;
}

export interface TakenDump {
  readonly file: string;
  readonly size: number;
  readonly ms: number;
}

/** Estimated cost of a dump. */
export interface HeapDumpCost {
  /** Used heap in bytes. */
  readonly heap: number;
  /** Required free bytes on disk. */
  readonly disk: number;
  /** Additional bytes of memory. */
  readonly memory: number;
  /** Seconds without responses. */
  readonly seconds: number;
}

const pattern = /^heap-\d{8}T\d{6}-[a-z0-9]{10,40}\.heapsnapshot$/;
const unfinishedPattern = /^\.heap-.*\.heapsnapshot\.tmp$/;
/** Files that belong to the folder. */
export const isOwnDump: OwnEntry = filesNamed(pattern, unfinishedPattern);
/** Requests that arrived during a dump are read after it: they count as concurrent. */
const SETTLE_MS = 1000;

export interface HeapDumpsInput {
  /** Absolute; made 0700. */
  readonly folder: string;
  readonly keep: () => number;
  readonly clock: Clock;
  readonly log: Log;
  /** Called before the process blocks. */
  readonly stallWatch: Pick<StallWatch, 'runDeliberateStall'>;
  /** Writes a snapshot; tests replace it. */
  readonly write?: (path: string) => void;
  /** Free bytes on the disk of the folder. */
  readonly free?: () => Promise<number>;
}

/** Heap snapshots in one folder. They contain everything in memory, including secrets. */
export class HeapDumps {
  readonly #input: Required<HeapDumpsInput>;
  #busy = false;

  constructor(input: HeapDumpsInput) {
    this.#input = {
      write: (path) => void writeHeapSnapshot(path),
      free: async () => {
        const { bavail, bsize } = await statfs(input.folder);
        return bavail * bsize;
      },
      ...input,
    };
  }

  /** Measured: a heap of 161 MiB took 20 s and 4.1 GB of memory; one of 32 MB 2.6 s and a file of 70 MB. */
  cost(): HeapDumpCost {
    const heap = getHeapStatistics().used_heap_size;
    return { heap, disk: heap * 2 + 64 * 1024 * 1024, memory: heap * 25, seconds: Math.max(1, Math.ceil(heap / 8e6)) };
  }

  /** Throws a problem: `conflict` while one is taken, `storage-full` without enough space. */
  async take(): Promise<TakenDump> {
    if (this.#busy) throw problem('conflict', 'A heap dump is being taken.');
    this.#busy = true;
    try {
      const taken = await this.#take();
      setTimeout(() => (this.#busy = false), SETTLE_MS).unref();
      return taken;
    } catch (error) {
      this.#busy = false;
      throw error;
    }
  }

  /** Removes unfinished dumps of killed processes: they are not listed, and contain secrets. */
  async sweep(): Promise<void> {
    for (const name of await this.#names(unfinishedPattern)) await rm(join(this.#input.folder, name), { force: true });
  }

  /** Newest first. */
  async list(): Promise<readonly HeapDump[]> {
    const names = await this.#names(pattern);
    const dumps = await Promise.all(names.map((file) => this.#describe(file)));
    return dumps.filter((dump) => dump !== undefined).toSorted((a, b) => (a.file < b.file ? 1 : -1));
  }

  /** Throws the problem `not-found`. */
  async source(file: string): Promise<ByteSource> {
    if (!pattern.test(file)) throw noSuchDump();
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    const handle = await open(join(this.#input.folder, file), flags).catch((cause: unknown) => {
      throw noSuchDump(cause);
    });
    const stat = await handle.stat();
    if (!stat.isFile()) {
      await handle.close();
      throw noSuchDump();
    }
    return {
      size: stat.size,
      open: (start, end) => createReadStream('', { fd: handle, start, end }),
      close: () => handle.close(),
    };
  }

  async remove(file: string): Promise<void> {
    if (!pattern.test(file) || (await this.#describe(file)) === undefined) throw noSuchDump();
    await rm(join(this.#input.folder, file), { force: true });
  }

  async #take(): Promise<TakenDump> {
    const { folder, clock, log, stallWatch, write, free } = this.#input;
    await this.#ownFolder();
    const { disk } = this.cost();
    if ((await free()) < disk) {
      throw problem('storage-full', `A heap dump needs ${Math.ceil(disk / 1024 / 1024)} MiB of free disk.`);
    }
    const stamp = new Date(clock.now()).toISOString().slice(0, 19).replace(/[-:]/g, '');
    const file = `heap-${stamp}-${uniqueId()
      .toLowerCase()
      .replace(/[^a-z0-9]/g, '')}.heapsnapshot`;
    const unfinished = join(folder, `.${file}.tmp`);
    const started = clock.monotonic();
    log.warn({ file }, 'a heap dump is taken: nothing else happens until it is written');
    try {
      stallWatch.runDeliberateStall(() => write(unfinished));
      await chmod(unfinished, 0o600);
      await rename(unfinished, join(folder, file));
    } catch (error) {
      await rm(unfinished, { force: true });
      throw error;
    }
    const ms = Math.round(clock.monotonic() - started);
    const { size } = await lstat(join(folder, file));
    await this.#forgetOld();
    log.warn({ file, size, ms }, 'a heap dump was taken');
    return { file, size, ms };
  }

  /** A link in its place would write secrets elsewhere. */
  async #ownFolder(): Promise<void> {
    const { folder } = this.#input;
    await mkdir(folder, { recursive: true, mode: 0o700 }).catch(() => undefined);
    if (!(await lstat(folder)).isDirectory())
      throw problem('unavailable', 'The folder of the heap dumps is no folder.');
    await chmod(folder, 0o700);
  }

  /** Files only. Empty when the folder is missing. */
  async #names(wanted: RegExp): Promise<readonly string[]> {
    const entries = await readdir(this.#input.folder, { withFileTypes: true }).catch(() => []);
    return entries.filter(filesNamed(wanted)).map(({ name }) => name);
  }

  async #forgetOld(): Promise<void> {
    for (const { file } of (await this.list()).slice(this.#input.keep())) {
      await rm(join(this.#input.folder, file), { force: true });
    }
  }

  async #describe(file: string): Promise<HeapDump | undefined> {
    const stat = await lstat(join(this.#input.folder, file)).catch(() => undefined);
    return stat?.isFile() === true ? { file, size: stat.size, created: stat.mtime.toISOString() } : undefined;
  }
}

const noSuchDump = (cause?: unknown): Error => problem('not-found', { detail: 'There is no such heap dump.', cause });
