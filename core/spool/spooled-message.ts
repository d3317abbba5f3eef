import type { Readable } from 'node:stream';
import { problem } from '../problem.js';
import { asStorageProblem, isMissing, isTaken } from '../disk/fault.js';
import { HeaderFilter } from './header-filter.js';
import { Placing, type PlacingGround } from './placing.js';
import type { SpoolFile } from './spool-file.js';
import type { HeaderEdit, KeptMessage, Placement, SpooledMessage, SpoolWriter } from './spool.js';

/** The trace part of a spooled message. */
export interface Prologue {
  /** `Return-Path:` line with its CRLF. */
  readonly returnPath: Buffer;
  /** Trace header fields with their CRLFs. */
  readonly trace: Buffer;
}

/** What the spool lends to each message. */
export interface MessageGround extends PlacingGround {
  /** A fault of the disk, for health. */
  readonly failed: (error: unknown) => void;
  readonly create: (prologue: Prologue) => SpoolWriter | Promise<SpoolWriter>;
}

const fieldName = /^[!-9;-~]+$/;
/** Text whose line breaks, if any, are folds. */
const fieldValue = /^(?:[^\r\n\0]|\r\n[ \t])*$/;

export class FileSpooledMessage implements SpooledMessage {
  readonly head: Buffer;
  readonly checksum: number;
  readonly #file: SpoolFile;
  readonly #prologue: Prologue;
  readonly #ground: MessageGround;
  readonly #placing: Placing;

  constructor(file: SpoolFile, prologue: Prologue, head: Buffer, checksum: number, ground: MessageGround) {
    this.#file = file;
    this.#prologue = prologue;
    this.head = head;
    this.checksum = checksum;
    this.#ground = ground;
    this.#placing = new Placing(file, ground);
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

  memory(offset = 0): Buffer | undefined {
    const blocks = this.#file.memory;
    if (blocks === undefined) return undefined;
    return Buffer.concat(blocks, this.size).subarray(offset);
  }

  async sync(): Promise<void> {
    try {
      await this.#placing.prepare();
    } catch (error) {
      throw this.#fault(error);
    }
  }

  /** Throws EEXIST and ENOENT as the system says them, everything else as a problem. */
  async place(placements: readonly Placement[]): Promise<void> {
    try {
      await this.#placing.place(placements);
    } catch (error) {
      throw isTaken(error) || isMissing(error) ? error : this.#fault(error);
    }
  }

  async keep(placement: Placement, stored: () => void, before?: Buffer): Promise<KeptMessage | undefined> {
    try {
      return await this.#placing.keep(placement, stored, before);
    } catch (error) {
      throw this.#fault(error);
    }
  }

  withdraw(placements: readonly Placement[]): Promise<boolean> {
    return this.#placing.withdraw(placements);
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

function fieldLine([name, value]: readonly [string, string]): string {
  if (!fieldName.test(name) || !fieldValue.test(value)) {
    throw problem('internal', { cause: new TypeError(`header field ${JSON.stringify(name)} would break the message`) });
  }
  return `${name}: ${value}\r\n`;
}
