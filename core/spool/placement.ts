import { allSettledOrThrow } from '../concurrency.js';
import { writeDurable } from '../disk/atomic.js';
import { faultCode } from '../disk/fault.js';
import { AppendFailed, LogFull } from './commit-log.js';
import type { LogOnlyMessage, MessageLog } from './message-log.js';
import type { SpoolContext, SpoolFile } from './spool-file.js';
import { type LinkTarget, type LoggedMessage, targetPath } from './spool.js';

/** What link(2) reports on a file system without hard links. */
const noLinksCodes = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/**
 * Blocking calls return from memory in less time than a thread needs to start, but block the event loop when a folder
 * is busy.
 */
type LinkMode = 'blocking' | 'threads';

/** Links one message at its targets: after a durable log record, or as a durable file. */
export class Placement {
  readonly #file: SpoolFile;
  readonly #context: SpoolContext;
  /** Numbers of the log records of linked messages. */
  readonly #records = new Map<LinkTarget, number>();
  readonly #logOnly = new Map<LinkTarget, LogOnlyMessage>();
  /** The last `link`: calls run one after the other, since each may move the file away. */
  #previous: Promise<void> | undefined;

  constructor(file: SpoolFile, context: SpoolContext) {
    this.#file = file;
    this.#context = context;
  }

  /** Makes the file durable, unless a log record will do. */
  async prepare(): Promise<void> {
    if (this.#log === undefined) await this.#file.sync();
  }

  /** All targets or none; throws system errors. */
  link(targets: readonly LinkTarget[]): Promise<void> {
    const previous = this.#previous;
    const linked = previous === undefined ? this.#link(targets) : previous.then(() => this.#link(targets));
    this.#previous = linked.catch(() => undefined);
    return linked;
  }

  /** Undefined when the log cannot take it: then it must be linked. */
  async keepInLog(target: LinkTarget, onLinked: () => void, prefix?: Buffer): Promise<LoggedMessage | undefined> {
    const log = this.#log;
    const { memory } = this.#file;
    if (log === undefined || memory === undefined) return undefined;
    const content = Buffer.concat(prefix === undefined ? memory : [prefix, ...memory]);
    if (!log.acceptsLogOnly(content.length)) return undefined;
    const logged = await log.pending.track(
      log.commitLogOnly(target, content, onLinked).catch((error: unknown) => this.#appendFailed(log, error)),
    );
    if (logged === undefined) return undefined;
    this.#records.set(target, logged.number);
    this.#logOnly.set(target, logged);
    return logged;
  }

  /**
   * Undoes `link` and `keepInLog`. The record is voided first, so that a crash in between does not restore the message.
   */
  async rollback(targets: readonly LinkTarget[]): Promise<boolean> {
    const { messages } = this.#context;
    const numbers = new Set(targets.flatMap((target) => this.#records.get(target) ?? []));
    let isGone = true;
    if (messages !== undefined) for (const number of numbers) isGone = (await this.#void(messages, number)) && isGone;
    for (const target of targets) {
      if (this.#logOnly.get(target)?.drop() === true) continue;
      isGone = (await this.#unlink(target)) && isGone;
    }
    return isGone;
  }

  /** The log, when it accepts this message. */
  get #log(): MessageLog | undefined {
    const { messages } = this.#context;
    return messages?.accepts(this.#file.size) === true && this.#file.memory !== undefined ? messages : undefined;
  }

  async #link(targets: readonly LinkTarget[]): Promise<void> {
    const log = this.#log;
    if (log === undefined) await this.#linkDurableFile(targets);
    else await log.pending.track(this.#linkLogged(log, targets));
  }

  async #linkDurableFile(targets: readonly LinkTarget[]): Promise<void> {
    await this.#file.sync();
    const { folders, isConcurrent } = this.#context;
    await this.#linkAll(targets, isConcurrent() ? 'threads' : 'blocking');
    try {
      await allSettledOrThrow([...new Set(targets.map(({ folder }) => folder))].map((path) => folders.sync(path)));
    } catch (error) {
      await this.#unlinkAll(targets, 'not durable, not removable');
      throw error;
    }
  }

  /**
   * Nothing is visible before the record is durable. The file is written at once and reaches the disk at the next
   * checkpoint.
   */
  async #linkLogged(log: MessageLog, targets: readonly LinkTarget[]): Promise<void> {
    const number = await log
      .commit(targets, this.#file.memory ?? [], this.#file.size)
      .catch((error: unknown) => this.#appendFailed(log, error));
    if (number === undefined) {
      await this.#linkDurableFile(targets);
      return;
    }
    try {
      await this.#file.store();
      await this.#linkAll(targets, 'blocking');
    } catch (error) {
      await this.#void(log, number);
      throw error;
    }
    for (const target of targets) this.#records.set(target, number);
  }

  /** Undefined when the log is full and the message needs a durable file. */
  async #appendFailed(log: MessageLog, error: unknown): Promise<undefined> {
    if (error instanceof LogFull) return undefined;
    if (error instanceof AppendFailed) {
      await this.#void(log, error.number);
      throw error.cause;
    }
    throw error;
  }

  async #void(log: MessageLog, number: number): Promise<boolean> {
    try {
      await log.void(number);
      return true;
    } catch (error) {
      this.#context.log.error({ err: error }, 'possible duplicate: a message in the commit log could not be voided');
      return false;
    }
  }

  /** Links the file at all targets but the last, and moves it to the last one. */
  async #linkAll(targets: readonly LinkTarget[], mode: LinkMode): Promise<void> {
    const linked: LinkTarget[] = [];
    const last = targets.at(-1);
    const link = async (target: LinkTarget): Promise<void> => {
      await this.#linkOne(targetPath(target), mode);
      linked.push(target);
    };
    try {
      if (targets.length > 1) await allSettledOrThrow(targets.slice(0, -1).map(link));
      if (last !== undefined && !(await this.#moveTo(last, mode))) await link(last);
    } catch (error) {
      await this.#unlinkAll(linked, 'linked, but not removable after a sibling failed');
      throw error;
    }
  }

  async #linkOne(path: string, mode: LinkMode): Promise<void> {
    const { files } = this.#context;
    try {
      await (mode === 'blocking' ? files.linkNow(this.#file.path, path) : files.link(this.#file.path, path));
    } catch (error) {
      if (!noLinksCodes.has(faultCode(error) ?? '')) throw error;
      await this.#renameCopy(path);
    }
  }

  /** Without hard links: renames a durable copy. */
  async #renameCopy(path: string): Promise<void> {
    const { files, newPath } = this.#context;
    const copy = newPath();
    try {
      await writeDurable(files, copy, this.#file.open(0));
      if (await files.exists(path)) throw nameTaken();
      await files.rename(copy, path);
    } catch (error) {
      await files.unlink(copy).catch(() => undefined);
      throw error;
    }
  }

  /**
   * A rename overwrites, so names that may be taken are looked up first; the lookup blocks while another process
   * changes the folder.
   */
  #moveTo(target: LinkTarget, mode: LinkMode): Promise<boolean> {
    const { files } = this.#context;
    return this.#file.moveTo(targetPath(target), async (from, to) => {
      if (target.isUnique !== true && (await files.exists(to))) throw nameTaken();
      await (mode === 'blocking' ? files.renameNow(from, to) : files.rename(from, to));
    });
  }

  async #unlinkAll(targets: readonly LinkTarget[], why: string): Promise<void> {
    for (const target of targets) {
      if (!(await this.#unlink(target))) {
        this.#context.log.error({ name: target.name }, `possible duplicate: ${why}`);
      }
    }
  }

  async #unlink(target: LinkTarget): Promise<boolean> {
    try {
      await this.#context.files.unlink(targetPath(target));
      return true;
    } catch (error) {
      this.#context.log.warn({ err: error, name: target.name }, 'a linked message could not be removed');
      return false;
    }
  }
}

const nameTaken = (): Error => Object.assign(new Error('the name is taken'), { code: 'EEXIST' });
