import { dirname, join } from 'node:path';
import { type Clock, systemClock } from '../clock.js';
import type { HealthReport } from '../contracts/health.js';
import type { Log } from '../log/log.js';
import { problem } from '../problem.js';
import { CommitLog } from './commit-log.js';
import { FreeSpace, WriteHealth } from './health.js';
import { isMissing } from '../disk/fault.js';
import { type FileLayer, nodeFiles } from '../disk/file-layer.js';
import { coreutilsFlush, type FileSystemFlush, type FolderSync, folderSyncOf, makeFolder } from '../disk/folder.js';
import { HeadCollector, SpoolFile, type SpoolContext } from './spool-file.js';
import { uniqueId, uniqueIdPattern } from '../disk/id.js';
import { MessageLog } from './message-log.js';
import { FilePool, FileRemover } from './file-pool.js';
import type { FindLinked } from './restoration.js';
import { Semaphore } from '../concurrency.js';
import { FileSpoolWriter, type Prologue } from './message.js';
import type { Spool, SpoolWriter } from './spool.js';

/**
 * How a message becomes durable before it is acknowledged: by an fsync of its own file, or in the shared commit log.
 */
export type Durability = 'file' | 'log';

export interface SpoolOptions {
  readonly log: Log;
  readonly durability?: Durability;
  readonly clock?: Clock;
  readonly files?: FileLayer;
  /**
   * Larger messages are written to a file while they arrive, this many bytes at a time; smaller ones go into the log,
   * or are written at once.
   */
  readonly memoryBytes?: number;
  /** Bytes of a message that may wait for the disk before its sender has to. */
  readonly backlogBytes?: number;
  /** Bytes kept of a header block for hooks and indexes. */
  readonly headBytes?: number;
  /** With less free space no message is accepted. */
  readonly reserveBytes?: number;
  /** Large messages with open files while peers send them; more senders wait. One that is rewritten has two files. */
  readonly openWhileReceiving?: number;
  /** Files open while messages are made durable; more wait. */
  readonly openWhileSyncing?: number;
  readonly flush?: FileSystemFlush;
  /** Sizes and times of the commit log; see `CommitLogOptions` and `MessageLogOptions`. */
  readonly segmentBytes?: number;
  readonly maxSegments?: number;
  readonly checkpointMs?: number;
  readonly checkpointBytes?: number;
  readonly idleMs?: number;
}

const defaults = {
  memoryBytes: 256 * 1024,
  backlogBytes: 512 * 1024,
  headBytes: 256 * 1024,
  reserveBytes: 16 * 1024 * 1024,
  openWhileReceiving: 512,
  openWhileSyncing: 64,
  checkpointMs: 2000,
  checkpointBytes: 32 * 1024 * 1024,
};

/** Blocking calls are used while no more messages than this are being made durable. */
const maxBlocking = 2;

/** Keeps each message in a file of its own, which a record of the commit log may make durable. */
export class FileSpool implements Spool {
  readonly #settings: SpoolOptions & typeof defaults;
  readonly #freeSpace: FreeSpace;
  readonly #health: WriteHealth;
  readonly #pool: FilePool;
  readonly #messages: MessageLog | undefined;
  /** The commit log exists or should exist, and cannot be opened. */
  readonly #isLogUnopened: boolean;
  readonly #context: SpoolContext;

  /** Prefer `openSpool`. */
  constructor(
    folder: string,
    folders: FolderSync,
    files: FileLayer,
    options: SpoolOptions,
    commits: CommitLog | 'unopened' | undefined,
  ) {
    const settings = { ...defaults, ...options };
    const { log, memoryBytes, backlogBytes, checkpointBytes, checkpointMs, idleMs } = settings;
    const { clock = systemClock, flush = coreutilsFlush } = settings;
    const isLogUsed = options.durability === 'log';
    const newPath = (): string => join(folder, uniqueId());
    this.#settings = settings;
    this.#freeSpace = new FreeSpace(folder, files, clock);
    this.#health = new WriteHealth(folder, { files, clock });
    this.#isLogUnopened = commits === 'unopened';
    if (commits !== undefined && commits !== 'unopened') {
      const shared = { files, folders, log, flush, newPath };
      const sizes = { checkpointBytes, checkpointMs, idleMs };
      this.#messages = new MessageLog({ ...shared, ...sizes, commits, root: dirname(folder), isUsed: isLogUsed });
    }
    const syncing = new Semaphore(settings.openWhileSyncing);
    const isConcurrent = (): boolean => syncing.taken + (this.#messages?.pending.count ?? 0) > maxBlocking;
    this.#pool = new FilePool({ files, kind: isLogUsed ? 'plain' : 'durable', isConcurrent, newPath });
    this.#context = {
      files,
      folders,
      log,
      pool: this.#pool,
      remover: new FileRemover((path) => remove(files, path, log)),
      messages: this.#messages,
      receiving: new Semaphore(settings.openWhileReceiving),
      syncing,
      isConcurrent,
      memoryBytes,
      backlogBytes,
      newPath,
      create: (returnPath, trace, source) => this.create(returnPath, trace, source),
      failed: (error) => this.#health.failed(error),
    };
  }

  create(returnPath: Buffer, trace: Buffer, source?: SpoolFile): SpoolWriter | Promise<SpoolWriter> {
    const free = this.#freeSpace.read();
    return free instanceof Promise
      ? free.then((bytes) => this.#create(bytes, { returnPath, trace }, source))
      : this.#create(free, { returnPath, trace }, source);
  }

  #create(freeBytes: number, prologue: Prologue, source?: SpoolFile): SpoolWriter {
    const { reserveBytes, headBytes } = this.#settings;
    if (freeBytes < reserveBytes) {
      throw problem('storage-full', 'There is no room to store it now; try again later.');
    }
    const file = new SpoolFile(this.#context, source);
    return new FileSpoolWriter(file, prologue, new HeadCollector(headBytes), this.#context);
  }

  /** Degraded after a disk fault until a probe succeeds, and while free space is below the reserve. */
  report(): HealthReport {
    if (this.#freeSpace.lastKnown < this.#settings.reserveBytes) {
      void this.#freeSpace.read();
      return { status: 'degraded', why: 'The disk is almost full. Messages are refused with a temporary answer.' };
    }
    const health = this.#health.report();
    if (health.status !== 'up') return health;
    if (this.#isLogUnopened) {
      const why =
        'The commit log cannot be opened; the log file says why. Each message is a durable file; messages in the log are restored by a start that can open it.';
      return { status: 'degraded', why };
    }
    return this.#messages?.report() ?? health;
  }

  figures(): Readonly<Record<string, number>> {
    const free = this.#freeSpace.lastKnown;
    return {
      ...(Number.isFinite(free) && { freeBytes: free }),
      receiving: this.#context.receiving.taken,
      syncing: this.#context.syncing.taken,
    };
  }

  /**
   * Restores messages that the commit log acknowledged before a crash. Call it once, before messages come in; until
   * then each message is a durable file. Never rejects.
   * @param finder makes one that finds where a linked message is now; each is used for one look through the log
   */
  async recover(finder?: () => FindLinked): Promise<void> {
    await this.#messages?.recover(finder);
  }

  /** While degraded, tries to write. Never rejects. */
  async probe(): Promise<void> {
    await this.#freeSpace.read();
    await this.#health.probe();
  }

  /** Resolves when the files of all released messages are removed. */
  settled(): Promise<void> {
    return this.#context.remover.idle();
  }

  /** Makes everything durable: the next start has nothing to replay. */
  async close(): Promise<void> {
    await this.settled();
    await this.#pool.close();
    await this.#messages?.close();
  }
}

/** Opens the spool and removes files of a process that died: none of them was acknowledged under its spool name. */
export async function openSpool(folder: string, options: SpoolOptions): Promise<FileSpool> {
  const files = options.files ?? nodeFiles;
  const folders = folderSyncOf(files);
  await makeFolder(folder, files, folders);
  for (const name of await files.readdir(folder)) {
    const path = join(folder, name);
    const isOurs = uniqueIdPattern.test(name) || name.startsWith('.probe-');
    if (isOurs && (await files.lstat(path)).isFile()) await remove(files, path, options.log);
  }
  return new FileSpool(folder, folders, files, options, await openCommits(`${folder}-log`, files, options));
}

/**
 * The log, when it is configured or there is one to replay. Without it messages are durable files, and mail still comes
 * in.
 */
async function openCommits(
  folder: string,
  files: FileLayer,
  options: SpoolOptions,
): Promise<CommitLog | 'unopened' | undefined> {
  const { log, durability, segmentBytes, maxSegments, idleMs } = options;
  const sizes = {
    ...(segmentBytes !== undefined && { segmentBytes }),
    ...(maxSegments !== undefined && { maxSegments }),
    // Slightly less than the interval of the caller, so that a call on time is not too early.
    ...(idleMs !== undefined && { idleMs: idleMs - 5 }),
  };
  try {
    if (durability !== 'log' && !(await files.exists(folder))) return undefined;
    return await CommitLog.open(folder, { files, log, ...sizes });
  } catch (error) {
    log.error({ err: error }, 'the commit log cannot be opened; each message is a durable file instead');
    return 'unopened';
  }
}

async function remove(files: FileLayer, path: string, log: Log): Promise<void> {
  try {
    await files.unlink(path);
  } catch (error) {
    if (!isMissing(error)) log.warn({ err: error }, 'a spool file could not be removed; the next start tries again');
  }
}
