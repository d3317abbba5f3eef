import { crc32 } from 'node:zlib';
import { asStorageProblem } from '../disk/fault.js';
import type { HeadCollector } from './head.js';
import type { SpoolFile } from './spool-file.js';
import { FileSpooledMessage, type MessageGround, type Prologue } from './spooled-message.js';
import type { SpooledMessage, SpoolWriter } from './spool.js';

/** Takes one message while it arrives. Faults of the disk are problems: temporary, without a path. */
export class FileSpoolWriter implements SpoolWriter {
  readonly #file: SpoolFile;
  readonly #prologue: Prologue;
  readonly #head: HeadCollector;
  readonly #ground: MessageGround;
  #checksum: number;

  constructor(file: SpoolFile, prologue: Prologue, head: HeadCollector, ground: MessageGround) {
    this.#file = file;
    this.#prologue = prologue;
    this.#head = head;
    this.#ground = ground;
    this.#checksum = crc32(prologue.trace);
    // Far below what is written through, so there is nothing to wait for.
    void file.write(prologue.returnPath);
    void file.write(prologue.trace);
  }

  get size(): number {
    return this.#file.size;
  }

  write(chunk: Buffer): Promise<void> | void {
    this.#head.add(chunk);
    this.#checksum = crc32(chunk, this.#checksum);
    const room = this.#file.write(chunk);
    if (room !== undefined) return room.catch((error: unknown) => this.#fail(error));
  }

  async finish(): Promise<SpooledMessage> {
    try {
      await this.#file.finish();
    } catch (error) {
      return this.#fail(error);
    }
    return new FileSpooledMessage(this.#file, this.#prologue, this.#head.head, this.#checksum, this.#ground);
  }

  discard(): Promise<void> {
    return this.#file.release();
  }

  #fail(error: unknown): never {
    this.#ground.failed(error);
    throw asStorageProblem(error);
  }
}
