import type { Log } from '../log.js';
import { writeDurable } from './atomic.js';
import { AppendFailed, LogFull } from './log-failure.js';
import { faultCode, isMissing } from './fault.js';
import type { FileLayer } from './file-layer.js';
import type { FolderSync } from './folder.js';
import { jointly } from './joint.js';
import type { MessageLog } from './message-log.js';
import { pathOf } from './restoration.js';
import type { SpoolFile } from './spool-file.js';
import type { Placement } from './spool.js';

export interface PlacingGround {
  readonly files: FileLayer;
  readonly folders: FolderSync;
  readonly log: Log;
  /** Absent: every message is a durable file before it is placed. */
  readonly messages?: MessageLog | undefined;
  /** A fresh path in the spool, for the copy that stands in for a link. */
  readonly freshPath: () => string;
}

/** What `link(2)` says on a file system that has no links. */
const linklessCodes = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/** Brings one message to its places: by a record in the log that is durable, or as a durable file. */
export class Placing {
  readonly #file: SpoolFile;
  readonly #ground: PlacingGround;
  /** Numbers of the records by which messages were placed. */
  readonly #records = new Map<Placement, number>();

  constructor(file: SpoolFile, ground: PlacingGround) {
    this.#file = file;
    this.#ground = ground;
  }

  /** Whatever can be done before the message is placed. */
  async prepare(): Promise<void> {
    if (this.#log === undefined) await this.#file.sync();
  }

  /** All or none; throws what the system says. */
  async place(placements: readonly Placement[]): Promise<void> {
    const log = this.#log;
    if (log === undefined) await this.#placeFile(placements);
    else await log.placing(this.#placeByLog(log, placements));
  }

  /** The log, if it can take this message. */
  get #log(): MessageLog | undefined {
    const { messages } = this.#ground;
    return messages?.takes(this.#file.size) === true && this.#file.memory !== undefined ? messages : undefined;
  }

  async #placeFile(placements: readonly Placement[]): Promise<void> {
    await this.#file.sync();
    await this.#linkAll(placements, (path) => this.#ground.files.link(this.#file.path, path));
    try {
      await jointly(
        [...new Set(placements.map(({ folder }) => folder))].map((path) => this.#ground.folders.sync(path)),
      );
    } catch (error) {
      await this.#takeBack(placements, 'not durable, not removable');
      throw error;
    }
  }

  /** Nothing is visible before the record is durable. The file follows at once, and comes to the disk later. */
  async #placeByLog(log: MessageLog, placements: readonly Placement[]): Promise<void> {
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
      await this.#linkAll(placements, (path) => this.#ground.files.linkNow(this.#file.path, path));
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

  async #linkAll(placements: readonly Placement[], link: (path: string) => Promise<void>): Promise<void> {
    const linked: Placement[] = [];
    try {
      await jointly(
        placements.map(async (placement) => {
          await this.#link(pathOf(placement), link);
          linked.push(placement);
        }),
      );
    } catch (error) {
      await this.#takeBack(linked, 'a sibling could not be placed, this one not removed');
      throw error;
    }
  }

  async #takeBack(placements: readonly Placement[], what: string): Promise<void> {
    for (const placement of placements) {
      if (!(await this.#unlink(placement))) {
        this.#ground.log.error({ name: placement.name }, `possible duplicate: ${what}`);
      }
    }
  }

  async #link(path: string, link: (path: string) => Promise<void>): Promise<void> {
    try {
      await link(path);
    } catch (error) {
      if (!linklessCodes.has(faultCode(error) ?? '')) throw error;
      await this.#renameCopy(path);
    }
  }

  /** Without links: a durable copy is renamed into place. A rename overwrites, so the name must hold enough chance. */
  async #renameCopy(path: string): Promise<void> {
    const { files, freshPath } = this.#ground;
    const copy = freshPath();
    try {
      await writeDurable(files, copy, this.#file.open(0));
      if (await exists(files, path)) throw Object.assign(new Error('the name is taken'), { code: 'EEXIST' });
      await files.rename(copy, path);
    } catch (error) {
      await files.unlink(copy).catch(() => undefined);
      throw error;
    }
  }

  /** The record first: a crash in between must not bring the message again. */
  async withdraw(placements: readonly Placement[]): Promise<boolean> {
    const { messages } = this.#ground;
    const numbers = new Set(placements.flatMap((placement) => this.#records.get(placement) ?? []));
    let gone = true;
    if (messages !== undefined) for (const number of numbers) gone = (await this.#void(messages, number)) && gone;
    for (const placement of placements) gone = (await this.#unlink(placement)) && gone;
    return gone;
  }

  async #unlink(placement: Placement): Promise<boolean> {
    try {
      await this.#ground.files.unlink(pathOf(placement));
      return true;
    } catch (error) {
      this.#ground.log.warn({ err: error, name: placement.name }, 'a placed message could not be withdrawn');
      return false;
    }
  }
}

async function exists(files: FileLayer, path: string): Promise<boolean> {
  try {
    await files.lstat(path);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
