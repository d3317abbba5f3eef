import { setImmediate } from 'node:timers/promises';
import { PendingWork } from '../concurrency.js';
import { isMissing } from '../disk/fault.js';
import type { FileLayer } from '../disk/file-layer.js';
import type { FileSystemFlush } from '../disk/folder.js';
import type { HealthReport } from '../contracts/health.js';
import type { Log } from '../log/log.js';
import { pluralize } from '../text/format.js';
import type { CommitLog } from './commit-log.js';
import {
  decodeMessage,
  decodeVoid,
  encodeMessage,
  encodeVoid,
  findAtTarget,
  type FindLinked,
  makeDurable,
  messageKind,
  type MessageRecord,
  removeLinked,
  type RestoreContext,
  restore,
  rewriteAll,
  voidKind,
} from './restoration.js';
import type { LogRecord } from './segments.js';
import { type LinkTarget, type LoggedMessage, targetPath } from './spool.js';

interface MessageLogOptions extends Omit<RestoreContext, 'find'> {
  readonly commits: CommitLog;
  readonly flush: FileSystemFlush;
  readonly log: Log;
  /** The data folder: folders below it are stored relative to it, and its file system is flushed. */
  readonly root: string;
  /** False: existing records are replayed, and none are added. */
  readonly isUsed: boolean;
  /** Maximum time between a message and the checkpoint that makes its file durable and releases its record. */
  readonly checkpointMs: number;
  /** A checkpoint also starts after this many bytes of messages. */
  readonly checkpointBytes: number;
  /** The log is shrunk after this time without a message. */
  readonly idleMs?: number | undefined;
}

/** After a failure the next checkpoint waits this many times longer. */
const retryFactor = 10;
const idleMs = 65_000;
/** Memory for messages without a file. */
const maxLogOnlyBytes = 64 * 1024 * 1024;
/** Files written before the event loop may continue. */
const filesPerTurn = 16;

/**
 * Messages whose files are perhaps not on the disk yet. Each is durable by its record until a checkpoint has made the
 * files durable.
 */
export class MessageLog {
  readonly #options: MessageLogOptions;
  /** Makes one for each look through the log: what it has seen is old afterwards. */
  #finder: () => FindLinked;
  #isReady = false;
  /** Messages being linked; a checkpoint waits for them. */
  readonly pending = new PendingWork();
  /** Messages without a file, in the order of their records. */
  readonly #logOnly = new Set<LogOnlyMessage>();
  #logOnlyBytes = 0;
  /** Newest record at the last checkpoint: messages logged after it get no file at the next one. */
  #lastSeen = 0;
  #isClosing = false;
  /** Newest record whose file was written. */
  #newestFile = 0;
  /** Files of records up to this number are durable. */
  #flushed = 0;
  #checkpointTimer: NodeJS.Timeout | undefined;
  #bytesSinceCheckpoint = 0;
  #idleTimer: NodeJS.Timeout | undefined;
  #checkpoint: Promise<void> | undefined;
  #hasFailed = false;
  #unrestored = 0;
  /** A flush has failed since messages were written again: the kernel reports such a fault once. */
  #hasLostFiles = false;
  /** Records up to this number were replayed at the start. */
  #replayed: number | undefined;
  #filesAside = 0;

  constructor(options: MessageLogOptions) {
    this.#options = options;
    this.#finder = () => findAtTarget(options.files);
  }

  /**
   * Restores messages that were acknowledged before a crash; until it resolves, no message is accepted. Never rejects:
   * what cannot be restored stays in the log for the next start.
   */
  async recover(finder = this.#finder): Promise<void> {
    const { commits, log } = this.#options;
    this.#finder = finder;
    const newest = commits.last;
    const counts = { there: 0, written: 0, gone: 0, removed: 0 };
    try {
      await this.#countAside();
      await this.#forEachMessage(
        async (record, context) => {
          for (const restored of await restore(record, context)) counts[restored] += 1;
        },
        newest,
        async (record, context) => {
          await removeLinked(record, context);
          counts.removed += 1;
        },
      );
      if (this.#unrestored === 0) this.#replayed = newest;
      await this.#releaseReplayed();
    } catch (error) {
      log.error({ err: error }, 'the commit log could not be replayed completely; the next start tries again');
      this.#hasFailed = true;
    }
    if (counts.there + counts.written + counts.gone + counts.removed > 0)
      log.info(counts, 'the commit log was replayed');
    this.#isReady = this.#unrestored === 0 && !this.#hasFailed;
    if (this.#hasFailed && this.#replayed !== undefined) this.#scheduleCheckpoint(this.#options.checkpointMs);
    this.#shrinkLater();
  }

  /** Whether it accepts a message of that size now. */
  accepts(size: number): boolean {
    const { commits, isUsed } = this.#options;
    return isUsed && this.#isReady && !commits.isFull && size <= commits.maxPayload - 64 * 1024;
  }

  /** Whether it accepts a message of that size without a file. */
  acceptsLogOnly(size: number): boolean {
    return this.accepts(size) && !this.#hasFailed && this.#logOnlyBytes + size <= maxLogOnlyBytes;
  }

  /**
   * Resolves with the number of the record when the message is durable and its files may be written. Rejects as
   * `CommitLog.append` does.
   */
  async commit(targets: readonly LinkTarget[], content: readonly Buffer[], size: number): Promise<number> {
    const number = await this.#append(targets, content, size);
    this.#newestFile = Math.max(this.#newestFile, number);
    return number;
  }

  /**
   * Resolves when the message is durable by its record alone. The caller tracks it in `pending`; rejects as
   * `CommitLog.append` does.
   */
  async commitLogOnly(target: LinkTarget, content: Buffer, onLinked: () => void): Promise<LogOnlyMessage> {
    const number = await this.#append([target], [content], content.length);
    const onSettled = (settled: LogOnlyMessage): void => {
      if (this.#logOnly.delete(settled)) this.#logOnlyBytes -= settled.size;
    };
    const message = new LogOnlyMessage({ target, content, number, onSettled, onLinked });
    this.#logOnly.add(message);
    this.#logOnlyBytes += message.size;
    return message;
  }

  /** Voids the message of that record: a replay does not restore it. */
  async void(number: number): Promise<void> {
    await this.#options.commits.append(voidKind, [encodeVoid(number)]);
  }

  /** Makes the files of all messages so far durable and releases their records. Never rejects; one runs at a time. */
  checkpoint(): Promise<void> {
    clearTimeout(this.#checkpointTimer);
    this.#checkpointTimer = undefined;
    this.#checkpoint ??= this.#runCheckpoint().finally(() => {
      this.#checkpoint = undefined;
    });
    return this.#checkpoint;
  }

  report(): HealthReport {
    if (this.#unrestored > 0) {
      const why = `${pluralize(this.#unrestored, 'message')} of the commit log could not be written; the log file says why.`;
      return { status: 'degraded', why };
    }
    if (this.#hasFailed) {
      return { status: 'degraded', why: 'Messages of the commit log could not be made durable.' };
    }
    if (this.#filesAside === 0) return { status: 'up' };
    void this.#countAside().catch(() => undefined);
    const files = pluralize(this.#filesAside, 'file');
    const why = `The commit log was damaged. Look at what was set aside in spool-log/aside (${files}, notes of what is lost among them), then remove it: rm spool-log/aside/*`;
    return { status: 'degraded', why };
  }

  async close(): Promise<void> {
    await this.#checkpoint;
    this.#isClosing = true;
    await this.checkpoint();
    clearTimeout(this.#checkpointTimer);
    clearTimeout(this.#idleTimer);
    await this.#options.commits.close();
  }

  async #append(targets: readonly LinkTarget[], content: readonly Buffer[], size: number): Promise<number> {
    const { commits, root, checkpointBytes, checkpointMs } = this.#options;
    const number = await commits.append(messageKind, encodeMessage(root, targets, content));
    this.#bytesSinceCheckpoint += size;
    if (this.#bytesSinceCheckpoint >= checkpointBytes && !this.#hasFailed) void this.checkpoint();
    else this.#scheduleCheckpoint(checkpointMs);
    return number;
  }

  #scheduleCheckpoint(ms: number): void {
    this.#checkpointTimer ??= setTimeout(() => void this.checkpoint(), this.#hasFailed ? ms * retryFactor : ms).unref();
  }

  async #runCheckpoint(): Promise<void> {
    const { commits, log, checkpointMs } = this.#options;
    // Records that could not be replayed stay for a start that can.
    if (!this.#isReady && !(await this.#finishRecovery())) return;
    this.#bytesSinceCheckpoint = 0;
    try {
      const { last, hasUnreleased } = commits;
      await this.pending.settled();
      const newest = this.#isClosing || commits.isFull ? last : this.#withoutRecent(last);
      this.#lastSeen = last;
      if (hasUnreleased) {
        await this.#linkLogOnly(newest);
        if (this.#newestFile > this.#flushed) await this.#makeDurable(newest);
        this.#flushed = newest;
        await commits.release(newest);
      }
      await commits.prepare();
      this.#hasFailed = false;
    } catch (error) {
      this.#hasFailed = true;
      log.error(
        { err: error },
        'the messages of the commit log could not be made durable; the next checkpoint tries again',
      );
    }
    if (this.#hasFailed || commits.hasUnreleased) this.#scheduleCheckpoint(checkpointMs);
    else this.#shrinkLater();
  }

  /**
   * Excludes messages logged since the last checkpoint and all records after them: most are dropped by the next
   * checkpoint.
   */
  #withoutRecent(last: number): number {
    for (const { number } of this.#logOnly) if (number > this.#lastSeen) return Math.min(last, number - 1);
    return last;
  }

  /** Writes the files of messages that are still needed before their records are released. */
  async #linkLogOnly(newest: number): Promise<void> {
    const { files, newPath } = this.#options;
    let count = 0;
    for (const message of this.#logOnly) {
      if (message.number > newest) continue;
      this.#newestFile = Math.max(this.#newestFile, message.number);
      await message.link(files, newPath());
      count += 1;
      if (count % filesPerTurn === 0) await setImmediate();
    }
  }

  /** After a failed flush the kernel takes lost pages for clean ones, so all files are written again. */
  async #makeDurable(newest: number): Promise<void> {
    const { flush, root, log } = this.#options;
    try {
      const isFlushed = await flush.flush(root);
      if (isFlushed && !this.#hasLostFiles) {
        this.#unrestored = 0;
        return;
      }
    } catch (error) {
      log.error({ err: error }, 'the disk has lost files that are in the commit log; they are written again');
      this.#hasLostFiles = true;
    }
    await this.#forEachMessage(this.#hasLostFiles ? rewriteAll : makeDurable, newest);
    if (this.#unrestored > 0) throw new Error('some messages of the log could not be written');
    this.#hasLostFiles = false;
  }

  #shrinkLater(): void {
    clearTimeout(this.#idleTimer);
    if (this.#isClosing) return;
    this.#idleTimer = setTimeout(() => {
      this.#options.commits.shrink().catch((error: unknown) => {
        this.#options.log.warn({ err: error }, 'the commit log could not be shrunk');
      });
    }, this.#options.idleMs ?? idleMs).unref();
  }

  /** Makes restored files durable and releases their records. */
  async #releaseReplayed(): Promise<void> {
    const { commits, isUsed } = this.#options;
    if (this.#replayed !== undefined && commits.hasUnreleased) {
      await this.#makeDurable(this.#replayed);
      await commits.release(this.#replayed);
      await this.#countAside();
    }
    if (isUsed) await commits.prepare();
  }

  /** Retries the end of a recovery that the disk refused, being full or read-only. */
  async #finishRecovery(): Promise<boolean> {
    if (this.#replayed === undefined) return false;
    try {
      await this.#releaseReplayed();
      this.#hasFailed = false;
      this.#isReady = true;
    } catch {
      this.#scheduleCheckpoint(this.#options.checkpointMs);
    }
    return this.#isReady;
  }

  /**
   * Visits every message up to that number that is not void; once more, with a new finder, those that were not found:
   * they may have been moved meanwhile. A failing visit is logged and counted.
   */
  async #forEachMessage(visit: Visit, newest: number, visitVoid?: Visit): Promise<void> {
    const { commits, root, log } = this.#options;
    const voids = new Set<number>();
    await commits.replay(({ kind, payload }) => {
      if (kind === voidKind) voids.add(decodeVoid(payload));
    });
    this.#unrestored = 0;
    const look = async (missed?: ReadonlySet<number>): Promise<ReadonlySet<number>> => {
      const context = { ...this.#options, find: this.#finder() };
      const unfound = new Set<number>();
      await commits.replay(async ({ kind, number, payload }: LogRecord) => {
        if (kind !== messageKind || number > newest || missed?.has(number) === false) return;
        try {
          const message = decodeMessage(root, payload);
          if (message === undefined) throw new Error('the record is invalid');
          const isFound = await (voids.has(number) ? visitVoid?.(message, context) : visit(message, context));
          if (isFound === false) unfound.add(number);
        } catch (error) {
          if (missed === undefined && isMissing(error)) {
            unfound.add(number);
            return;
          }
          this.#unrestored += 1;
          log.error({ err: error, record: number }, 'a message of the commit log could not be restored');
        }
      });
      return unfound;
    };
    const missed = await look();
    if (missed.size > 0) await look(missed);
  }

  async #countAside(): Promise<void> {
    this.#filesAside = await this.#options.commits.countAside();
  }
}

/** False when the message is not at all of its targets; it rejects with ENOENT when it was moved or removed meanwhile. */
type Visit = (record: MessageRecord, context: RestoreContext) => Promise<boolean | void>;

interface LogOnlyMessageOptions {
  readonly target: LinkTarget;
  readonly content: Buffer;
  readonly number: number;
  /** Called once, when the log can forget it: the file is linked, or the message is dropped. */
  readonly onSettled: (message: LogOnlyMessage) => void;
  /** Called when the file is linked. */
  readonly onLinked: () => void;
}

/**
 * A message that is durable by its record alone. Its file is written when the record is released and the message is
 * still needed.
 */
export class LogOnlyMessage implements LoggedMessage {
  readonly number: number;
  readonly size: number;
  readonly #options: LogOnlyMessageOptions;
  #content: Buffer | undefined;
  #state: 'logged' | 'linking' | 'linked' | 'dropped' = 'logged';

  constructor(options: LogOnlyMessageOptions) {
    this.#options = options;
    this.number = options.number;
    this.size = options.content.length;
    this.#content = options.content;
  }

  get content(): Buffer | undefined {
    return this.#content;
  }

  drop(): boolean {
    if (this.#state === 'linked') return false;
    const isLinking = this.#state === 'linking';
    this.#content = undefined;
    if (this.#state !== 'dropped' && !isLinking) this.#options.onSettled(this);
    this.#state = 'dropped';
    return true;
  }

  /**
   * Writes and links the file by blocking calls, not durably. When it rejects with a system error, the message is
   * unchanged.
   */
  async link(files: FileLayer, newPath: string): Promise<void> {
    const content = this.#content;
    if (content === undefined || this.#state !== 'logged') return;
    this.#state = 'linking';
    const path = targetPath(this.#options.target);
    try {
      await files.createNow(newPath, [content]);
      await files.renameNow(newPath, path);
    } catch (error) {
      await files.unlink(newPath).catch(() => undefined);
      if (this.#isDropped()) return this.#options.onSettled(this);
      this.#state = 'logged';
      throw error;
    }
    try {
      if (this.#isDropped()) await files.unlink(path);
      else {
        this.#state = 'linked';
        this.#content = undefined;
        this.#options.onLinked();
      }
    } finally {
      this.#options.onSettled(this);
    }
  }

  /** It may be dropped during the await. */
  #isDropped(): boolean {
    return this.#state === 'dropped';
  }
}
