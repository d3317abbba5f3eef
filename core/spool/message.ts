import type { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { asStorageProblem, isMissing, isNameTaken } from '../disk/fault.js';
import { problem } from '../problem.js';
import type { HeadCollector, SpoolContext, SpoolFile } from './spool-file.js';
import { Placement } from './placement.js';
import { writeEdited } from './edited.js';
import {
  BodyError,
  type LoggedMessage,
  type LinkTarget,
  type MessageEdit,
  type SpooledMessage,
  type SpoolWriter,
} from './spool.js';

/** The trace part of a spooled message. */
export interface Prologue {
  /** `Return-Path:` line with its CRLF. */
  readonly returnPath: Buffer;
  /** Trace header fields with their CRLFs. */
  readonly trace: Buffer;
}

/** Receives one message. Disk faults become problems: temporary, without a path. */
export class FileSpoolWriter implements SpoolWriter {
  readonly #file: SpoolFile;
  readonly #prologue: Prologue;
  readonly #head: HeadCollector;
  readonly #context: SpoolContext;
  #checksum: number;

  constructor(file: SpoolFile, prologue: Prologue, head: HeadCollector, context: SpoolContext) {
    this.#file = file;
    this.#prologue = prologue;
    this.#head = head;
    this.#context = context;
    this.#checksum = crc32(prologue.trace);
    // Far below `memoryBytes`, so there is nothing to wait for.
    void file.write(prologue.returnPath);
    void file.write(prologue.trace);
  }

  get size(): number {
    return this.#file.size;
  }

  write(chunk: Buffer): Promise<void> | void {
    this.#head.add(chunk);
    this.#checksum = crc32(chunk, this.#checksum);
    const drained = this.#file.write(chunk);
    if (drained !== undefined) return drained.catch((error: unknown) => this.#fail(error));
  }

  async finish(): Promise<SpooledMessage> {
    try {
      await this.#file.finish();
    } catch (error) {
      return this.#fail(error);
    }
    return new FileMessage(this.#file, this.#prologue, this.#head.head, this.#checksum, this.#context);
  }

  discard(): Promise<void> {
    return this.#file.release();
  }

  #fail(error: unknown): never {
    this.#context.failed(error);
    throw asStorageProblem(error);
  }
}

const fieldName = /^[!-9;-~]+$/;
/** Text whose line breaks, if any, are folds. */
const fieldValue = /^(?:[^\r\n\0]|\r\n[ \t])*$/;

/** A received message with its spool file. Disk faults become problems. */
class FileMessage implements SpooledMessage {
  readonly head: Buffer;
  readonly checksum: number;
  readonly #file: SpoolFile;
  readonly #prologue: Prologue;
  readonly #context: SpoolContext;
  readonly #placement: Placement;

  constructor(file: SpoolFile, prologue: Prologue, head: Buffer, checksum: number, context: SpoolContext) {
    this.#file = file;
    this.#prologue = prologue;
    this.head = head;
    this.checksum = checksum;
    this.#context = context;
    this.#placement = new Placement(file, context);
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

  async prepare(): Promise<void> {
    try {
      await this.#placement.prepare();
    } catch (error) {
      throw this.#fault(error);
    }
  }

  async link(targets: readonly LinkTarget[]): Promise<void> {
    try {
      await this.#placement.link(targets);
    } catch (error) {
      throw isNameTaken(error) || isMissing(error) ? error : this.#fault(error);
    }
  }

  async keepInLog(target: LinkTarget, onLinked: () => void, prefix?: Buffer): Promise<LoggedMessage | undefined> {
    try {
      return await this.#placement.keepInLog(target, onLinked, prefix);
    } catch (error) {
      throw this.#fault(error);
    }
  }

  rollback(targets: readonly LinkTarget[]): Promise<boolean> {
    return this.#placement.rollback(targets);
  }

  replacement(returnPath = this.#prologue.returnPath): SpoolWriter | Promise<SpoolWriter> {
    return this.#context.create(returnPath, this.#prologue.trace, this.#file);
  }

  /** When it rejects, this message stays as it was. */
  async rewrite(edit: MessageEdit): Promise<SpooledMessage> {
    const added = Buffer.from(edit.add.map(fieldLine).join(''));
    const writer = await this.replacement(edit.returnPath);
    try {
      await writer.write(added);
      await writeEdited(this.open(this.messageOffset), writer, edit);
      const rewritten = await writer.finish();
      await this.release();
      return rewritten;
    } catch (error) {
      await writer.discard();
      throw error instanceof BodyError ? error : this.#fault(error);
    }
  }

  release(): Promise<void> {
    return this.#file.release();
  }

  #fault(error: unknown): Error {
    this.#context.failed(error);
    return asStorageProblem(error);
  }
}

function fieldLine([name, value]: readonly [string, string]): string {
  if (!fieldName.test(name) || !fieldValue.test(value)) {
    throw problem('internal', { cause: new TypeError(`header field ${JSON.stringify(name)} would break the message`) });
  }
  return `${name}: ${value}\r\n`;
}
