import { dirname, join } from 'node:path';
import { type Clock, systemClock } from '../clock.js';
import type { HealthReport } from '../host/health.js';
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
import { linkCallsOf } from './placement.js';
import { type FindLinked, findAtTarget } from './restoration.js';
import { Semaphore } from '../concurrency.js';
import { FileSpoolWriter, type MessageContext, type Prologue } from './message.js';
import type { Spool, SpoolWriter } from './spool.js';

/** How a message becomes durable before it is acknowledged: by an fsync of its own file, or in a log that many share. */
export type Durability = 'file' | 'log';

export interface SpoolOptions {
  readonly log: Log;
  readonly durability?: Durability;
  readonly clock?: Clock;
  readonly files?: FileLayer;
  /** Larger messages are files, written while they arrive, so many bytes at a time; smaller ones go into the log, or are written at once when they must be durable. */
  readonly memoryBytes?: number;
  /** So much of a message may wait for the disk before its sender has to. */
  readonly backlogBytes?: number;
  /** What is kept of a header block for hooks and indexes. */
  readonly headBytes?: number;
  /** With less free space than that no message is taken. */
  readonly reserveBytes?: number;
  /** Files that are open because a peer is sending a large message; more senders wait. */
  readonly openWhileReceiving?: number;
  /** Files that are open because a message is being made durable; more wait. */
  readonly openWhileSyncing?: number;
  readonly flush?: FileSystemFlush;
  /** Sizes and times of the commit log; see `CommitLogOptions` and `MessageLogInput`. */
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

/** So many messages on their way at once are no crowd. */
const few = 2;

/** The spool that keeps each message in a file, which a record of the commit log may make durable. */
export class FileSpool implements Spool {
  readonly #headBytes: number;
  readonly #reserveBytes: number;
  readonly #room: FreeSpace;
  readonly #health: WriteHealth;
  readonly #fresh: FilePool;
  readonly #messages: MessageLog | undefined;
  /** There is a log, or should be one, and it cannot be opened. */
  readonly #unopened: boolean;
  readonly #ground: SpoolContext & MessageContext;

  /** Prefer `openSpool`. */
  constructor(
    folder: string,
    folders: FolderSync,
    files: FileLayer,
    options: SpoolOptions,
    commits: CommitLog | 'unopened' | undefined,
  ) {
    const inUse = options.durability === 'log';
    const settings = { ...defaults, ...options };
    const clock = options.clock ?? systemClock;
    this.#headBytes = settings.headBytes;
    this.#reserveBytes = settings.reserveBytes;
    this.#room = new FreeSpace(folder, files, clock);
    this.#health = new WriteHealth(folder, { files, clock });
    const freshPath = (): string => join(folder, uniqueId());
    this.#unopened = commits === 'unopened';
    if (commits !== undefined && commits !== 'unopened') {
      const { log, checkpointBytes, checkpointMs, idleMs, flush = coreutilsFlush } = settings;
      const find = findAtTarget(files);
      const root = dirname(folder);
      const shared = { files, folders, log, flush, find, freshPath };
      this.#messages = new MessageLog({ ...shared, commits, root, inUse, checkpointBytes, checkpointMs, idleMs });
    }
    const brief = new Semaphore(settings.openWhileSyncing);
    const crowded = (): boolean => brief.taken + (this.#messages?.placing.count ?? 0) > few;
    this.#fresh = new FilePool({ files, kind: inUse ? 'plain' : 'durable', crowded, freshPath });
    this.#ground = {
      files,
      naming: linkCallsOf(files),
      folders,
      log: options.log,
      fresh: this.#fresh,
      reaper: new FileRemover((path) => remove(files, path, options.log)),
      lasting: new Semaphore(settings.openWhileReceiving),
      brief,
      crowded,
      memoryBytes: settings.memoryBytes,
      backlogBytes: settings.backlogBytes,
      failed: (error) => this.#health.failed(error),
      create: (prologue) => this.#create(prologue),
      freshPath,
      messages: this.#messages,
    };
  }

  create(returnPath: Buffer, trace: Buffer): SpoolWriter | Promise<SpoolWriter> {
    return this.#create({ returnPath, trace });
  }

  #create(prologue: Prologue): SpoolWriter | Promise<SpoolWriter> {
    const free = this.#room.free();
    return free instanceof Promise
      ? free.then((bytes) => this.#createWithin(bytes, prologue))
      : this.#createWithin(free, prologue);
  }

  #createWithin(free: number, prologue: Prologue): SpoolWriter {
    if (free < this.#reserveBytes) {
      throw problem('storage-full', 'There is no room to store it now; try again later.');
    }
    const file = new SpoolFile(this.#ground);
    return new FileSpoolWriter(file, prologue, new HeadCollector(this.#headBytes), this.#ground);
  }

  /** Degraded after a fault of the disk until a probe succeeds, or while there is less free space than the reserve. */
  report(): HealthReport {
    if (this.#room.lastKnown < this.#reserveBytes) {
      void this.#room.free();
      return { status: 'degraded', why: 'The disk is almost full. Messages are refused with a temporary answer.' };
    }
    const health = this.#health.report();
    if (health.status !== 'up') return health;
    if (this.#unopened) {
      const why =
        'The commit log cannot be opened; the log file says why. Each message is a durable file, and those that may be in it come with a start that can.';
      return { status: 'degraded', why };
    }
    return this.#messages?.report() ?? health;
  }

  figures(): Readonly<Record<string, number>> {
    const free = this.#room.lastKnown;
    return {
      ...(Number.isFinite(free) && { freeBytes: free }),
      receiving: this.#ground.lasting.taken,
      syncing: this.#ground.brief.taken,
    };
  }

  /**
   * What the commit log has acknowledged before a crash is in its mailbox when this resolves. To be called once, before
   * messages come in; until then each is a durable file. Never rejects.
   * @param find where a message is that was placed
   */
  async recover(find?: FindLinked): Promise<void> {
    await this.#messages?.recover(find);
  }

  /** Tries to write while it is degraded; never rejects. */
  async probe(): Promise<void> {
    await this.#room.free();
    await this.#health.probe();
  }

  /** Resolves when every released message has left the folder. */
  settled(): Promise<void> {
    return this.#ground.reaper.idle();
  }

  /** The last thing: everything is on the disk, and a next start has nothing to replay. */
  async close(): Promise<void> {
    await this.settled();
    await this.#fresh.close();
    await this.#messages?.close();
  }
}

/** Opens the spool. Files that a dead process left are removed: none of them was acknowledged under its spool name. */
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

/** The log, if it is asked for or there is one to replay. Without it messages are durable files, and mail still comes in. */
async function openCommits(
  folder: string,
  files: FileLayer,
  options: SpoolOptions,
): Promise<CommitLog | 'unopened' | undefined> {
  const { log, durability, segmentBytes, maxSegments, idleMs } = options;
  const sizes = {
    ...(segmentBytes !== undefined && { segmentBytes }),
    ...(maxSegments !== undefined && { maxSegments }),
    // A little less, so that whoever asks then is not put off by a millisecond.
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
