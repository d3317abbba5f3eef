import { setImmediate } from 'node:timers/promises';
import { PendingWork } from '../concurrency.js';
import type { FileLayer } from '../disk/file-layer.js';
import type { FileSystemFlush } from '../disk/folder.js';
import type { HealthReport } from '../host/health.js';
import type { Log } from '../log/log.js';
import { pluralize } from '../text/format.js';
import type { CommitLog } from './commit-log.js';
import {
  decodeMessage,
  decodeVoid,
  encodeMessage,
  encodeVoid,
  type FindLinked,
  makeDurable,
  messageKind,
  type MessageRecord,
  removeLinked,
  type RestorationContext,
  restore,
  rewriteAll,
  voidKind,
} from './restoration.js';
import type { LogRecord } from './segments.js';
import { type LinkTarget, type LoggedMessage, targetPath } from './spool.js';

interface MessageLogOptions extends RestorationContext {
  readonly commits: CommitLog;
  readonly flush: FileSystemFlush;
  readonly log: Log;
  /** The data folder: folders below it are kept relative to it, and its file system is flushed. */
  readonly root: string;
  /** False: what is there is replayed, and nothing is added. */
  readonly isUsed: boolean;
  /** So long after a message at the latest, its file is brought to the disk and its record is not wanted any more. */
  readonly checkpointMs: number;
  /** So many bytes of messages do not wait for that time. */
  readonly checkpointBytes: number;
  /** When nothing came for so long, the log is made small. */
  readonly idleMs?: number | undefined;
}

/** A checkpoint that failed is tried again after so many times the usual wait. */
const retryFactor = 10;
/** When nothing came for so long, the log is made small. */
const idleMs = 65_000;
/** Messages without a file may have so much memory. */
const maxKeptBytes = 64 * 1024 * 1024;
/** So many files are written before others have a turn. */
const filesPerTurn = 16;

/**
 * The messages whose files may be in memory only. Each is durable by its record until a checkpoint has brought the
 * files to the disk.
 */
export class MessageLog {
  readonly #input: MessageLogOptions;
  #find: FindLinked;
  #ready = false;
  /** What is being placed: a checkpoint waits for it. */
  readonly pending = new PendingWork();
  /** Messages without a file, in the order of their records. */
  readonly #kept = new Set<LogOnlyMessage>();
  #keptBytes = 0;
  /** The newest record at the last checkpoint: who was kept before may be kept no longer. */
  #seen = 0;
  #closing = false;
  /** The newest record whose files are written beside it. */
  #newestFile = 0;
  /** Files of records up to that number are on the disk. */
  #flushed = 0;
  #timer: NodeJS.Timeout | undefined;
  #bytes = 0;
  #idle: NodeJS.Timeout | undefined;
  #checkpoint: Promise<void> | undefined;
  #failed = false;
  #unrestored = 0;
  /** Everything up to that number was replayed at the start. */
  #replayed: number | undefined;
  #aside = 0;

  constructor(input: MessageLogOptions) {
    this.#input = input;
    this.#find = input.find;
  }

  /** True when it takes a message of that size now. */
  accepts(size: number): boolean {
    const { commits, isUsed } = this.#input;
    return isUsed && this.#ready && !commits.full && size <= commits.largest - 64 * 1024;
  }

  /** True when it takes a message of that size that has no file. */
  acceptsLogOnly(size: number): boolean {
    return this.accepts(size) && !this.#failed && this.#keptBytes + size <= maxKeptBytes;
  }

  /** Resolves with the number of the record when the message is durable, and its files may be written. Throws as the log does. */
  async commit(placements: readonly LinkTarget[], content: readonly Buffer[], size: number): Promise<number> {
    const number = await this.#append(placements, content, size);
    this.#newestFile = Math.max(this.#newestFile, number);
    return number;
  }

  /** Resolves when the message is durable, without a file. To be called within `placing`; throws as the log does. */
  async commitLogOnly(placement: LinkTarget, content: Buffer, stored: () => void): Promise<LogOnlyMessage> {
    const number = await this.#append([placement], [content], content.length);
    const settled = (message: LogOnlyMessage): void => {
      if (this.#kept.delete(message)) this.#keptBytes -= message.size;
    };
    const kept = new LogOnlyMessage({ placement, content, number, settled, stored });
    this.#kept.add(kept);
    this.#keptBytes += kept.size;
    return kept;
  }

  async #append(placements: readonly LinkTarget[], content: readonly Buffer[], size: number): Promise<number> {
    const { commits, root, checkpointBytes, checkpointMs } = this.#input;
    const number = await commits.append(messageKind, encodeMessage(root, placements, content));
    this.#bytes += size;
    if (this.#bytes >= checkpointBytes && !this.#failed) void this.checkpoint();
    else this.#schedule(checkpointMs);
    return number;
  }

  /** The message of that number was taken back: after a crash it does not come again. */
  async void(number: number): Promise<void> {
    await this.#input.commits.append(voidKind, [encodeVoid(number)]);
  }

  #schedule(ms: number): void {
    this.#timer ??= setTimeout(() => void this.checkpoint(), this.#failed ? ms * retryFactor : ms).unref();
  }

  /** Brings the files of all messages so far to the disk and releases their records. Never rejects; one at a time. */
  checkpoint(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#checkpoint ??= this.#run().finally(() => {
      this.#checkpoint = undefined;
    });
    return this.#checkpoint;
  }

  async #run(): Promise<void> {
    const { commits, log, checkpointMs } = this.#input;
    // Records that were not replayed are wanted until a start that can.
    if (!this.#ready && !(await this.#finishRecovery())) return;
    this.#bytes = 0;
    try {
      const { last, hasUnreleased } = commits;
      await this.pending.settled();
      const newest = this.#closing || commits.full ? last : this.#behindYoung(last);
      this.#seen = last;
      if (hasUnreleased) {
        await this.#storeKept(newest);
        if (this.#newestFile > this.#flushed) await this.#bringToDisk(newest);
        this.#flushed = newest;
        await commits.release(newest);
      }
      await commits.prepare();
      this.#failed = false;
    } catch (error) {
      this.#failed = true;
      log.error({ err: error }, 'the messages of the commit log could not be brought to the disk; it is tried again');
    }
    if (this.#failed || commits.hasUnreleased) this.#schedule(checkpointMs);
    else this.#shrinkLater();
  }

  #shrinkLater(): void {
    clearTimeout(this.#idle);
    if (this.#closing) return;
    this.#idle = setTimeout(() => {
      this.#input.commits.shrink().catch((error: unknown) => {
        this.#input.log.warn({ err: error }, 'the commit log could not be made smaller');
      });
    }, this.#input.idleMs ?? idleMs).unref();
  }

  /** Messages that came since the last checkpoint are left alone, with all that came behind them: most are gone by the next. */
  #behindYoung(last: number): number {
    for (const { number } of this.#kept) if (number > this.#seen) return Math.min(last, number - 1);
    return last;
  }

  /** Messages that are still wanted come to their places before their records go. */
  async #storeKept(newest: number): Promise<void> {
    const { files, freshPath } = this.#input;
    let count = 0;
    for (const message of this.#kept) {
      if (message.number > newest) continue;
      this.#newestFile = Math.max(this.#newestFile, message.number);
      await message.store(files, freshPath());
      count += 1;
      if (count % filesPerTurn === 0) await setImmediate();
    }
  }

  /** After a fault the system takes lost pages for written ones, so that everything is written anew. */
  async #bringToDisk(newest: number): Promise<void> {
    const { flush, root, log } = this.#input;
    try {
      if (await flush.flush(root)) return;
    } catch (error) {
      log.error({ err: error }, 'the disk has lost files that are in the commit log; they are written again');
      await this.#each((record) => rewriteAll(record, this.#ground), newest);
      return;
    }
    await this.#each((record) => makeDurable(record, this.#ground), newest);
  }

  get #ground(): RestorationContext {
    return { ...this.#input, find: this.#find };
  }

  /**
   * What was acknowledged before a crash is in its mailbox when this resolves. Before that no message is taken. Never
   * rejects: what cannot be restored stays in the log and is tried again at the next start.
   */
  async recover(find: FindLinked = this.#input.find): Promise<void> {
    const { commits, log } = this.#input;
    this.#find = find;
    const newest = commits.last;
    const counts = { there: 0, written: 0, gone: 0, removed: 0 };
    try {
      await this.#countAside();
      await this.#each(
        async (record) => {
          for (const restored of await restore(record, this.#ground)) counts[restored] += 1;
        },
        newest,
        async (record) => {
          counts.removed += 1;
          await removeLinked(record, this.#ground);
        },
      );
      if (this.#unrestored === 0) this.#replayed = newest;
      await this.#release();
    } catch (error) {
      log.error({ err: error }, 'the commit log could not be replayed wholly; the next start tries again');
      this.#failed = true;
    }
    if (counts.there + counts.written + counts.gone + counts.removed > 0)
      log.info(counts, 'the commit log was replayed');
    this.#ready = this.#unrestored === 0 && !this.#failed;
    if (this.#failed && this.#replayed !== undefined) this.#schedule(this.#input.checkpointMs);
    this.#shrinkLater();
  }

  /** What was replayed is on the disk, and not wanted any more. */
  async #release(): Promise<void> {
    const { commits, isUsed } = this.#input;
    if (this.#replayed !== undefined && commits.hasUnreleased) {
      await this.#bringToDisk(this.#replayed);
      await commits.release(this.#replayed);
      await this.#countAside();
    }
    if (isUsed) await commits.prepare();
  }

  /** All was replayed, and the disk refused the rest: it was full or read-only. */
  async #finishRecovery(): Promise<boolean> {
    if (this.#replayed === undefined) return false;
    try {
      await this.#release();
      this.#failed = false;
      this.#ready = true;
    } catch {
      this.#schedule(this.#input.checkpointMs);
    }
    return this.#ready;
  }

  /** Every message up to that number that is not void. One that fails is logged and counted. */
  async #each(
    visit: (record: MessageRecord) => Promise<void>,
    newest: number,
    visitVoid?: (record: MessageRecord) => Promise<void>,
  ): Promise<void> {
    const { commits, root, log } = this.#input;
    const voids = new Set<number>();
    await commits.replay(({ kind, payload }) => {
      if (kind === voidKind) voids.add(decodeVoid(payload));
    });
    this.#unrestored = 0;
    await commits.replay(async (found: LogRecord) => {
      if (found.kind !== messageKind || found.number > newest) return;
      try {
        const record = decodeMessage(root, found.payload);
        if (record === undefined) throw new Error('the record cannot be understood');
        await (voids.has(found.number) ? visitVoid?.(record) : visit(record));
      } catch (error) {
        this.#unrestored += 1;
        log.error({ err: error, record: found.number }, 'a message of the commit log could not be restored');
      }
    });
    if (this.#unrestored > 0 && this.#ready) throw new Error('some messages of the log could not be written');
  }

  async #countAside(): Promise<void> {
    this.#aside = await this.#input.commits.countAside();
  }

  report(): HealthReport {
    if (this.#unrestored > 0) {
      const why = `${pluralize(this.#unrestored, 'message')} of the commit log could not be written; the log file says why.`;
      return { status: 'degraded', why };
    }
    if (this.#failed) {
      return { status: 'degraded', why: 'Messages of the commit log could not be brought to the disk.' };
    }
    if (this.#aside === 0) return { status: 'up' };
    void this.#countAside().catch(() => undefined);
    const files = pluralize(this.#aside, 'file was', 'files were');
    const why = `The commit log was damaged: ${files} set aside in spool-log/aside, with a note of what is lost. Look there, then remove them: rm spool-log/aside/*`;
    return { status: 'degraded', why };
  }

  async close(): Promise<void> {
    await this.#checkpoint;
    this.#closing = true;
    await this.checkpoint();
    clearTimeout(this.#timer);
    clearTimeout(this.#idle);
    await this.#input.commits.close();
  }
}

interface LogOnlyMessageOptions {
  readonly placement: LinkTarget;
  readonly content: Buffer;
  /** Number of its record. */
  readonly number: number;
  /** Called once, when the log need not think of it any more: it is in its place, or nobody wants it. */
  readonly settled: (message: LogOnlyMessage) => void;
  /** Called when it is in its place. */
  readonly stored: () => void;
}

/** A message that is durable by its record alone. Its file is written when the record has to go, and is still wanted. */
export class LogOnlyMessage implements LoggedMessage {
  readonly number: number;
  readonly size: number;
  readonly #input: LogOnlyMessageOptions;
  #content: Buffer | undefined;
  #state: 'kept' | 'storing' | 'stored' | 'dropped' = 'kept';

  constructor(input: LogOnlyMessageOptions) {
    this.#input = input;
    this.number = input.number;
    this.size = input.content.length;
    this.#content = input.content;
  }

  get content(): Buffer | undefined {
    return this.#content;
  }

  drop(): boolean {
    if (this.#state === 'stored') return false;
    const isStoring = this.#state === 'storing';
    this.#content = undefined;
    if (this.#state !== 'dropped' && !isStoring) this.#input.settled(this);
    this.#state = 'dropped';
    return true;
  }

  /** Writes the file by calls that block, not durable yet. Rejects as the system says; then it is as it was. */
  async store(files: FileLayer, freshPath: string): Promise<void> {
    const content = this.#content;
    if (content === undefined || this.#state !== 'kept') return;
    this.#state = 'storing';
    const path = targetPath(this.#input.placement);
    try {
      await files.createNow(freshPath, [content]);
      await files.renameNow(freshPath, path);
    } catch (error) {
      await files.unlink(freshPath).catch(() => undefined);
      if (this.#isDropped()) return this.#input.settled(this);
      this.#state = 'kept';
      throw error;
    }
    try {
      if (this.#isDropped()) await files.unlink(path);
      else {
        this.#state = 'stored';
        this.#content = undefined;
        this.#input.stored();
      }
    } finally {
      this.#input.settled(this);
    }
  }

  /** Whoever does not want it any more may have said so meanwhile. */
  #isDropped(): boolean {
    return this.#state === 'dropped';
  }
}
