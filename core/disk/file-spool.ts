import { join } from 'node:path';
import { systemClock, type Clock } from '../clock.js';
import type { HealthReport } from '../health.js';
import type { Log } from '../log.js';
import { problem } from '../problem.js';
import { DiskRoom } from './disk-room.js';
import { isMissing } from './fault.js';
import { nodeFiles, type FileLayer } from './file-layer.js';
import { folderSyncOf, makeFolder, type FolderSync } from './folder.js';
import { HeadCollector } from './head.js';
import { uniqueId, uniqueIdPattern } from './id.js';
import { Reaper } from './reaper.js';
import { Slots } from './slots.js';
import { SpoolFile, type SpoolGround } from './spool-file.js';
import { FileSpoolWriter } from './spool-writer.js';
import type { MessageGround, Prologue } from './spooled-message.js';
import type { Spool, SpoolWriter } from './spool.js';
import { WriteHealth } from './write-health.js';

export interface SpoolOptions {
  readonly log: Log;
  readonly clock?: Clock;
  readonly files?: FileLayer;
  /** Larger messages are written while they arrive; smaller ones at once, when they must be durable. */
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
}

const defaults = {
  memoryBytes: 64 * 1024,
  backlogBytes: 512 * 1024,
  headBytes: 256 * 1024,
  reserveBytes: 16 * 1024 * 1024,
  openWhileReceiving: 512,
  openWhileSyncing: 64,
};

/** The spool that keeps each message in a file of its own. */
export class FileSpool implements Spool {
  readonly #folder: string;
  readonly #headBytes: number;
  readonly #reserveBytes: number;
  readonly #room: DiskRoom;
  readonly #health: WriteHealth;
  readonly #ground: SpoolGround & MessageGround;

  constructor(folder: string, folders: FolderSync, files: FileLayer, options: SpoolOptions) {
    const settings = { ...defaults, ...options };
    const clock = options.clock ?? systemClock;
    this.#folder = folder;
    this.#headBytes = settings.headBytes;
    this.#reserveBytes = settings.reserveBytes;
    this.#room = new DiskRoom(folder, files, clock);
    this.#health = new WriteHealth(folder, { files, clock });
    this.#ground = {
      files,
      folders,
      log: options.log,
      reaper: new Reaper((path) => remove(files, path, options.log)),
      lasting: new Slots(settings.openWhileReceiving),
      brief: new Slots(settings.openWhileSyncing),
      memoryBytes: settings.memoryBytes,
      backlogBytes: settings.backlogBytes,
      failed: (error) => this.#health.failed(error),
      create: (prologue) => this.#create(prologue),
      freshPath: () => join(folder, uniqueId()),
    };
  }

  create(returnPath: Buffer, trace: Buffer): Promise<SpoolWriter> {
    return this.#create({ returnPath, trace });
  }

  async #create(prologue: Prologue): Promise<SpoolWriter> {
    if ((await this.#room.free()) < this.#reserveBytes) {
      throw problem('storage-full', 'There is no room to store it now; try again later.');
    }
    const file = new SpoolFile(this.#ground, join(this.#folder, uniqueId()));
    return new FileSpoolWriter(file, prologue, new HeadCollector(this.#headBytes), this.#ground);
  }

  /** Degraded after a fault of the disk until a probe succeeds, or while there is less free space than the reserve. */
  report(): HealthReport {
    if (this.#room.lastKnown < this.#reserveBytes) {
      void this.#room.free();
      return { status: 'degraded', why: 'The disk is almost full. Messages are refused with a temporary answer.' };
    }
    return this.#health.report();
  }

  /** Tries to write while it is degraded; never rejects. */
  async probe(): Promise<void> {
    await this.#room.free();
    await this.#health.probe();
  }

  /** Resolves when every released message has left the folder. */
  settled(): Promise<void> {
    return this.#ground.reaper.settled();
  }
}

/** Opens the spool. What a dead process left is removed: none of it was acknowledged under its spool name. */
export async function openSpool(folder: string, options: SpoolOptions): Promise<FileSpool> {
  const files = options.files ?? nodeFiles;
  const folders = folderSyncOf(files);
  await makeFolder(folder, files, folders);
  for (const name of await files.readdir(folder)) {
    if (uniqueIdPattern.test(name) || name.startsWith('.probe-')) await remove(files, join(folder, name), options.log);
  }
  return new FileSpool(folder, folders, files, options);
}

async function remove(files: FileLayer, path: string, log: Log): Promise<void> {
  try {
    await files.unlink(path);
  } catch (error) {
    if (!isMissing(error)) log.warn({ err: error }, 'a spool file could not be removed; the next start tries again');
  }
}
