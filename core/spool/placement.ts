import { allSettledOrThrow } from '../concurrency.js';
import { writeDurable } from '../disk/atomic.js';
import { faultCode } from '../disk/fault.js';
import type { FileLayer } from '../disk/file-layer.js';
import type { FolderSync } from '../disk/folder.js';
import type { Log } from '../log/log.js';
import { AppendFailed, LogFull } from './commit-log.js';
import type { LogOnlyMessage, MessageLog } from './message-log.js';
import type { SpoolFile } from './spool-file.js';
import { targetPath } from './restoration.js';
import type { LoggedMessage, LinkTarget } from './spool.js';

/** How a file gets one more name, and another one. */
type LinkCall = Readonly<Record<'link' | 'rename', (existing: string, path: string) => Promise<void>>>;

/** By threads, and by calls that block. */
interface LinkCalls {
  readonly threads: LinkCall;
  readonly now: LinkCall;
}

export function linkCallsOf(files: FileLayer): LinkCalls {
  return {
    threads: { link: (from, to) => files.link(from, to), rename: (from, to) => files.rename(from, to) },
    now: { link: (from, to) => files.linkNow(from, to), rename: (from, to) => files.renameNow(from, to) },
  };
}

export interface PlacementContext {
  readonly files: FileLayer;
  readonly naming: LinkCalls;
  readonly folders: FolderSync;
  readonly log: Log;
  /** Absent: every message is a durable file before it is placed. */
  readonly messages?: MessageLog | undefined;
  /** Several messages are on their way: a call that blocks may be held up. */
  readonly crowded: () => boolean;
  /** A fresh path in the spool, for the copy that stands in for a link. */
  readonly freshPath: () => string;
}

/** What `link(2)` says on a file system that has no links. */
const linklessCodes = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/** Brings one message to its places: by a record in the log that is durable, or as a durable file. */
export class Placement {
  readonly #file: SpoolFile;
  readonly #ground: PlacementContext;
  /** Numbers of the records by which messages were placed. */
  readonly #records = new Map<LinkTarget, number>();
  readonly #kept = new Map<LinkTarget, LogOnlyMessage>();
  /** The last `place`: targets that share the message take turns, for each may take its file away. */
  #turn: Promise<void> | undefined;

  constructor(file: SpoolFile, ground: PlacementContext) {
    this.#file = file;
    this.#ground = ground;
  }

  /** Whatever can be done before the message is placed. */
  async prepare(): Promise<void> {
    if (this.#log === undefined) await this.#file.sync();
  }

  /** All or none; throws what the system says. */
  place(placements: readonly LinkTarget[]): Promise<void> {
    const before = this.#turn;
    const placed = before === undefined ? this.#place(placements) : before.then(() => this.#place(placements));
    this.#turn = placed.catch(() => undefined);
    return placed;
  }

  async #place(placements: readonly LinkTarget[]): Promise<void> {
    const log = this.#log;
    if (log === undefined) await this.#placeFile(placements);
    else await log.placing.track(this.#placeByLog(log, placements));
  }

  /** Undefined when it must be placed. */
  async keep(placement: LinkTarget, stored: () => void, before?: Buffer): Promise<LoggedMessage | undefined> {
    const log = this.#log;
    const { memory } = this.#file;
    if (log === undefined || memory === undefined) return undefined;
    const content = Buffer.concat(before === undefined ? memory : [before, ...memory]);
    if (!log.keeps(content.length)) return undefined;
    const kept = await log.placing.track(
      log.keep(placement, content, stored).catch((error: unknown) => this.#refused(log, error)),
    );
    if (kept === undefined) return undefined;
    this.#records.set(placement, kept.number);
    this.#kept.set(placement, kept);
    return kept;
  }

  /** The log, if it can take this message. */
  get #log(): MessageLog | undefined {
    const { messages } = this.#ground;
    return messages?.takes(this.#file.size) === true && this.#file.memory !== undefined ? messages : undefined;
  }

  async #placeFile(placements: readonly LinkTarget[]): Promise<void> {
    await this.#file.sync();
    const { naming, folders, crowded } = this.#ground;
    await this.#nameAll(placements, crowded() ? naming.threads : naming.now);
    try {
      await allSettledOrThrow([...new Set(placements.map(({ folder }) => folder))].map((path) => folders.sync(path)));
    } catch (error) {
      await this.#takeBack(placements, 'not durable, not removable');
      throw error;
    }
  }

  /** Nothing is visible before the record is durable. The file follows at once, and comes to the disk later. */
  async #placeByLog(log: MessageLog, placements: readonly LinkTarget[]): Promise<void> {
    const content = this.#file.memory ?? [];
    const number = await log
      .commit(placements, content, this.#file.size)
      .catch((error: unknown) => this.#refused(log, error));
    if (number === undefined) {
      await this.#placeFile(placements);
      return;
    }
    try {
      await this.#file.store();
      await this.#nameAll(placements, this.#ground.naming.now);
    } catch (error) {
      await this.#void(log, number);
      throw error;
    }
    for (const placement of placements) this.#records.set(placement, number);
  }

  /** Undefined when the log is full, so that a file must do. */
  async #refused(log: MessageLog, error: unknown): Promise<undefined> {
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
      this.#ground.log.error({ err: error }, 'possible duplicate: a message in the commit log could not be taken back');
      return false;
    }
  }

  /** The file is linked into all places but the last, which it goes to itself. */
  async #nameAll(placements: readonly LinkTarget[], naming: LinkCall): Promise<void> {
    const named: LinkTarget[] = [];
    const last = placements.at(-1);
    const link = async (placement: LinkTarget): Promise<void> => {
      await this.#link(targetPath(placement), naming);
      named.push(placement);
    };
    try {
      if (placements.length > 1) await allSettledOrThrow(placements.slice(0, -1).map(link));
      if (last !== undefined && !(await this.#moveTo(last, naming))) await link(last);
    } catch (error) {
      await this.#takeBack(named, 'a sibling could not be placed, this one not removed');
      throw error;
    }
  }

  /** A rename overwrites. A look waits for whoever changes the folder, and blocks meanwhile, so it is for names that may be taken. */
  async #moveTo(placement: LinkTarget, naming: LinkCall): Promise<boolean> {
    return this.#file.moveTo(targetPath(placement), async (from, to) => {
      if (placement.isUnique !== true && (await this.#ground.files.exists(to))) throw taken();
      await naming.rename(from, to);
    });
  }

  async #takeBack(placements: readonly LinkTarget[], what: string): Promise<void> {
    for (const placement of placements) {
      if (!(await this.#unlink(placement))) {
        this.#ground.log.error({ name: placement.name }, `possible duplicate: ${what}`);
      }
    }
  }

  async #link(path: string, naming: LinkCall): Promise<void> {
    try {
      await naming.link(this.#file.path, path);
    } catch (error) {
      if (!linklessCodes.has(faultCode(error) ?? '')) throw error;
      await this.#renameCopy(path);
    }
  }

  /** Without links: a durable copy is renamed into place. */
  async #renameCopy(path: string): Promise<void> {
    const { files, freshPath } = this.#ground;
    const copy = freshPath();
    try {
      await writeDurable(files, copy, this.#file.open(0));
      if (await files.exists(path)) throw taken();
      await files.rename(copy, path);
    } catch (error) {
      await files.unlink(copy).catch(() => undefined);
      throw error;
    }
  }

  /** The record first: a crash in between must not bring the message again. */
  async withdraw(placements: readonly LinkTarget[]): Promise<boolean> {
    const { messages } = this.#ground;
    const numbers = new Set(placements.flatMap((placement) => this.#records.get(placement) ?? []));
    let gone = true;
    if (messages !== undefined) for (const number of numbers) gone = (await this.#void(messages, number)) && gone;
    for (const placement of placements) {
      if (this.#kept.get(placement)?.drop() === true) continue;
      gone = (await this.#unlink(placement)) && gone;
    }
    return gone;
  }

  async #unlink(placement: LinkTarget): Promise<boolean> {
    try {
      await this.#ground.files.unlink(targetPath(placement));
      return true;
    } catch (error) {
      this.#ground.log.warn({ err: error, name: placement.name }, 'a placed message could not be withdrawn');
      return false;
    }
  }
}

const taken = (): Error => Object.assign(new Error('the name is taken'), { code: 'EEXIST' });
