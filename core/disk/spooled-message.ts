import type { Readable } from 'node:stream';
import type { Log } from '../log.js';
import { problem } from '../problem.js';
import { writeDurable } from './atomic.js';
import { asStorageProblem, faultCode, isMissing, isTaken } from './fault.js';
import type { FileLayer } from './file-layer.js';
import type { FolderSync } from './folder.js';
import { HeaderFilter } from './header-filter.js';
import type { SpoolFile } from './spool-file.js';
import type { HeaderEdit, Placement, SpooledMessage, SpoolWriter } from './spool.js';

/** The trace part of a spooled message. */
export interface Prologue {
  /** `Return-Path:` line with its CRLF. */
  readonly returnPath: Buffer;
  /** Trace header fields with their CRLFs. */
  readonly trace: Buffer;
}

/** What the spool lends to each message. */
export interface MessageGround {
  readonly files: FileLayer;
  readonly folders: FolderSync;
  readonly log: Log;
  /** A fault of the disk, for health. */
  readonly failed: (error: unknown) => void;
  readonly create: (prologue: Prologue) => Promise<SpoolWriter>;
  /** A fresh path in the spool, for the copy that stands in for a link. */
  readonly freshPath: () => string;
}

/** What `link(2)` says on a file system that has no links. */
const linklessCodes = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);
const fieldName = /^[!-9;-~]+$/;
/** Text whose line breaks, if any, are folds. */
const fieldValue = /^(?:[^\r\n\0]|\r\n[ \t])*$/;

export class FileSpooledMessage implements SpooledMessage {
  readonly head: Buffer;
  readonly #file: SpoolFile;
  readonly #prologue: Prologue;
  readonly #ground: MessageGround;

  constructor(file: SpoolFile, prologue: Prologue, head: Buffer, ground: MessageGround) {
    this.#file = file;
    this.#prologue = prologue;
    this.head = head;
    this.#ground = ground;
  }

  get size(): number {
    return this.#file.size;
  }

  get traceOffset(): number {
    return this.#prologue.returnPath.length;
  }

  get messageOffset(): number {
    return this.#prologue.returnPath.length + this.#prologue.trace.length;
  }

  open(offset = 0): Readable {
    return this.#file.open(offset);
  }

  async sync(): Promise<void> {
    try {
      await this.#file.sync();
    } catch (error) {
      throw this.#fault(error);
    }
  }

  /** Throws EEXIST and ENOENT as the system says them, everything else as a problem. */
  async place(placement: Placement): Promise<void> {
    await this.sync();
    const path = pathOf(placement);
    try {
      await this.#link(path);
    } catch (error) {
      throw isTaken(error) || isMissing(error) ? error : this.#fault(error);
    }
    try {
      await this.#ground.folders.sync(placement.folder);
    } catch (error) {
      const withdrawn = await this.withdraw(placement);
      if (!withdrawn)
        this.#ground.log.error({ name: placement.name }, 'possible duplicate: not durable, not removable');
      throw this.#fault(error);
    }
  }

  async #link(path: string): Promise<void> {
    try {
      await this.#ground.files.link(this.#file.path, path);
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
      await writeDurable(files, copy, this.open());
      if (await exists(files, path)) throw Object.assign(new Error('the name is taken'), { code: 'EEXIST' });
      await files.rename(copy, path);
    } catch (error) {
      await files.unlink(copy).catch(() => undefined);
      throw error;
    }
  }

  async withdraw(placement: Placement): Promise<boolean> {
    try {
      await this.#ground.files.unlink(pathOf(placement));
      return true;
    } catch (error) {
      this.#ground.log.warn({ err: error, name: placement.name }, 'a placed message could not be withdrawn');
      return false;
    }
  }

  /** The answer takes the place of this message, which is released. When it rejects, this one stays as it was. */
  async rewrite(edit: HeaderEdit): Promise<SpooledMessage> {
    const added = Buffer.from(edit.add.map(fieldLine).join(''));
    const filter = new HeaderFilter(edit.remove);
    const writer = await this.#ground.create(this.#prologue);
    try {
      await writer.write(added);
      for await (const chunk of this.open(this.messageOffset) as AsyncIterable<Buffer>) {
        for (const kept of filter.push(chunk)) await writer.write(kept);
      }
      await writer.write(filter.end());
      const rewritten = await writer.finish();
      await this.release();
      return rewritten;
    } catch (error) {
      await writer.discard();
      throw this.#fault(error);
    }
  }

  release(): Promise<void> {
    return this.#file.release();
  }

  #fault(error: unknown): Error {
    this.#ground.failed(error);
    return asStorageProblem(error);
  }
}

function pathOf({ folder, name }: Placement): string {
  return `${folder}/${name}`;
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

function fieldLine([name, value]: readonly [string, string]): string {
  if (!fieldName.test(name) || !fieldValue.test(value)) {
    throw problem('internal', { cause: new TypeError(`header field ${JSON.stringify(name)} would break the message`) });
  }
  return `${name}: ${value}\r\n`;
}
