import { Readable } from 'node:stream';
import type { Semaphore } from '../concurrency.js';
import { type FileLayer, writeAll } from '../disk/file-layer.js';
import type { NewFileKind, FilePool, FileRemover } from './file-pool.js';

/** What the spool lends to each of its files. */
export interface SpoolContext {
  readonly files: FileLayer;
  readonly fresh: Pick<FilePool, 'create'>;
  readonly reaper: FileRemover;
  /** Open files that last as long as a peer takes to send. */
  readonly lasting: Semaphore;
  /** Open files that last as long as the disk takes. */
  readonly brief: Semaphore;
  /** Up to so many bytes stay in memory, and their file is written at once when it must be durable; more are written so many at a time. */
  readonly memoryBytes: number;
  /** A path in the spool that nobody has had. */
  readonly freshPath: () => string;
  /** More bytes than that are waiting for the disk: the writer is told to wait. */
  readonly backlogBytes: number;
}

const readBytes = 64 * 1024;
const releasedError = (): Error => new Error('the message was released');

/**
 * The bytes of one message on their way to the disk. A small one is in memory until `sync` writes it in one go; a
 * larger one is written while it arrives, in order.
 */
export class SpoolFile {
  readonly #ground: SpoolContext;
  #path: string | undefined;
  readonly #blocks = new Blocks();
  #size = 0;
  #fd: number | undefined;
  /** True once bytes have left the memory, or have tried to. */
  #spilled = false;
  #queue: Buffer[] = [];
  #backlog = 0;
  #pumping: Promise<void> | undefined;
  #drained: (() => void)[] = [];
  #failure: Error | undefined;
  #stored: Promise<void> | undefined;
  #synced: Promise<void> | undefined;
  #released = false;

  constructor(ground: SpoolContext) {
    this.#ground = ground;
  }

  /** Where it is on the disk, or will be: many a message never is. */
  get path(): string {
    this.#path ??= this.#ground.freshPath();
    return this.#path;
  }

  get size(): number {
    return this.#size;
  }

  write(chunk: Buffer): Promise<void> | void {
    if (this.#released) return Promise.reject(releasedError());
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    this.#blocks.add(chunk);
    this.#size += chunk.length;
    const { memoryBytes } = this.#ground;
    if (this.#spilled ? this.#blocks.fullBytes < memoryBytes : this.#size <= memoryBytes) return;
    this.#enqueue(this.#blocks.takeFull());
    if (this.#backlog > this.#ground.backlogBytes) return this.#room();
  }

  /** Every byte has been given to the system, unless the message is small enough to stay in memory. */
  async finish(): Promise<void> {
    if (this.#released) throw releasedError();
    if (this.#spilled) this.#enqueue(this.#blocks.takeAll());
    await this.#pumping;
    if (this.#failure !== undefined) throw this.#failure;
  }

  #enqueue(blocks: readonly Buffer[]): void {
    if (blocks.length === 0 || this.#failure !== undefined) return;
    this.#spilled = true;
    for (const block of blocks) this.#backlog += block.length;
    this.#queue.push(...blocks);
    this.#pumping ??= this.#pump();
  }

  /**
   * Never rejects: what went wrong is kept in `#failure`, for whoever writes or finishes next. `#pumping` is cleared
   * in the same breath as the last look at the queue, so that no block is left in it.
   */
  async #pump(): Promise<void> {
    try {
      this.#fd ??= await this.#open();
      while (this.#queue.length > 0) {
        const batch = this.#queue;
        this.#queue = [];
        await writeAll(this.#ground.files, this.#fd, batch);
        for (const block of batch) this.#backlog -= block.length;
        this.#wake();
      }
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
      this.#wake();
    }
    this.#pumping = undefined;
  }

  async #open(): Promise<number> {
    await this.#ground.lasting.acquire();
    try {
      return await this.#ground.files.open(this.path, 'wx', 0o600);
    } catch (error) {
      this.#ground.lasting.release();
      throw error;
    }
  }

  async #room(): Promise<void> {
    await new Promise<void>((resolve) => this.#drained.push(resolve));
    if (this.#released) throw releasedError();
    if (this.#failure !== undefined) throw this.#failure;
  }

  #wake(): void {
    if (this.#failure === undefined && this.#backlog > this.#ground.backlogBytes / 2) return;
    const drained = this.#drained;
    this.#drained = [];
    for (const resolve of drained) resolve();
  }

  /**
   * The bytes are on the disk, under a name that nobody looks at. Tried once: after a failed fsync the same
   * descriptor would say "fine" without having written anything.
   */
  sync(): Promise<void> {
    if (this.#released) return Promise.reject(releasedError());
    this.#synced ??= this.#spilled ? this.#syncSpilled() : this.#syncMemory();
    return this.#synced;
  }

  /** The whole of it while it is in memory; undefined when some of it has left, or it was released. */
  get memory(): readonly Buffer[] | undefined {
    return this.#spilled || this.#released ? undefined : this.#blocks.all();
  }

  /** What is in memory is in the file, durable or not. */
  store(): Promise<void> {
    if (this.#released) return Promise.reject(releasedError());
    this.#stored ??= this.#synced ?? this.#storeMemory();
    return this.#stored;
  }

  /** Its name is this file's from now on. */
  async #make(kind: NewFileKind): Promise<number> {
    const { path, fd } = await this.#ground.fresh.create(kind, this.#path);
    this.#path = path;
    return fd;
  }

  async #storeMemory(): Promise<void> {
    const { files } = this.#ground;
    const fd = await this.#make('plain');
    try {
      await files.writeNow(fd, this.#blocks.all());
    } finally {
      await files.close(fd);
    }
  }

  async #syncMemory(): Promise<void> {
    await this.#stored;
    await this.#briefly((files) =>
      this.#stored === undefined ? this.#writeDurable(files) : fsyncFile(files, this.path),
    );
  }

  /** A failing close counts, for some file systems report a failed write there. */
  async #writeDurable(files: FileLayer): Promise<void> {
    const fd = await this.#make('durable');
    try {
      await writeAll(files, fd, this.#blocks.all());
    } catch (error) {
      await files.close(fd).catch(() => undefined);
      throw error;
    }
    await files.close(fd);
  }

  async #briefly(work: (files: FileLayer) => Promise<void>): Promise<void> {
    const { brief, files } = this.#ground;
    await brief.acquire();
    try {
      await work(files);
    } finally {
      brief.release();
    }
  }

  async #syncSpilled(): Promise<void> {
    try {
      if (this.#fd !== undefined) await this.#ground.files.fsync(this.#fd);
    } catch (error) {
      await this.#close().catch(() => undefined);
      throw error;
    }
    await this.#close();
  }

  async #close(): Promise<void> {
    const fd = this.#fd;
    if (fd === undefined) return;
    this.#fd = undefined;
    this.#ground.lasting.release();
    await this.#ground.files.close(fd);
  }

  /** The bytes from `offset` on. A descriptor is opened at the first read and closed with the stream. */
  open(offset: number): Readable {
    const source = this.#spilled ? this.#readFile(offset) : this.#readMemory(offset);
    return Readable.from(source, { objectMode: false, highWaterMark: readBytes });
  }

  *#readMemory(offset: number): Generator<Buffer> {
    if (this.#released) throw releasedError();
    let skip = offset;
    for (const block of this.#blocks.all()) {
      if (skip < block.length) yield block.subarray(skip);
      skip = Math.max(0, skip - block.length);
    }
  }

  async *#readFile(offset: number): AsyncGenerator<Buffer> {
    const { files } = this.#ground;
    const fd = await files.open(this.path, 'r');
    try {
      let at = offset;
      while (at < this.#size) {
        const buffer = Buffer.allocUnsafeSlow(Math.min(readBytes, this.#size - at));
        const count = await files.read(fd, buffer, at);
        if (count === 0) throw new Error('the spool file is shorter than what was written');
        at += count;
        yield buffer.subarray(0, count);
      }
    } finally {
      await files.close(fd);
    }
  }

  /**
   * True when the file was given that name, and is the spool's no more: it is written anew if it is wanted again. A message
   * that is not wholly in memory keeps its file, and false is the answer.
   */
  async moveTo(to: string, rename: (from: string, to: string) => Promise<void>): Promise<boolean> {
    if (this.memory === undefined) return false;
    await rename(this.path, to);
    this.#path = undefined;
    this.#stored = undefined;
    this.#synced = undefined;
    return true;
  }

  /** Lets go of the memory, the descriptor and the spool's name of it. Never rejects; once is enough. */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    this.#queue = [];
    await this.#pumping;
    this.#backlog = 0;
    this.#wake();
    await this.#stored?.catch(() => undefined);
    await this.#synced?.catch(() => undefined);
    await this.#close().catch(() => undefined);
    const onDisk = this.#spilled || this.#stored !== undefined || this.#synced !== undefined;
    this.#blocks.takeAll();
    if (onDisk) await this.#ground.reaper.add(this.path);
  }
}

async function fsyncFile(files: FileLayer, path: string): Promise<void> {
  const fd = await files.open(path, 'r');
  try {
    await files.fsync(fd);
  } finally {
    await files.close(fd);
  }
}

const emptyLine = Buffer.from('\r\n\r\n');
const none = Buffer.alloc(0);

/** Keeps the header block of a message that passes by: through its empty line, or the first `limit` bytes. */
export class HeadCollector {
  readonly #limit: number;
  #bytes: Buffer = none;
  #used = 0;
  #complete = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get head(): Buffer {
    return this.#bytes.subarray(0, this.#used);
  }

  add(chunk: Buffer): void {
    if (this.#complete || chunk.length === 0) return;
    const known = this.#used;
    const end = known === 0 ? endOfHead(chunk, 0) : -1;
    if (end >= 0 && end <= this.#limit && isWorthKeeping(chunk)) {
      this.#bytes = chunk.subarray(0, end);
      this.#used = end;
      this.#complete = true;
      return;
    }
    this.#append(end < 0 ? chunk : chunk.subarray(0, end));
    this.#cut(end < 0 ? endOfHead(this.head, Math.max(0, known - emptyLine.length + 1)) : this.#used);
  }

  #cut(end: number): void {
    if (end < 0 && this.#used < this.#limit) return;
    this.#used = Math.min(this.#limit, end < 0 ? this.#used : end);
    this.#complete = true;
  }

  #append(chunk: Buffer): void {
    const needed = Math.min(this.#limit, this.#used + chunk.length);
    if (needed > this.#bytes.length) {
      const exact = this.#used === 0 ? needed : Math.min(this.#limit, Math.max(needed, 2 * this.#bytes.length));
      const grown = Buffer.allocUnsafeSlow(exact);
      this.#bytes.copy(grown, 0, 0, this.#used);
      this.#bytes = grown;
    }
    this.#used += chunk.copy(this.#bytes, this.#used, 0, needed - this.#used);
  }
}

/** Offset behind the empty line that ends the header block, or -1. */
function endOfHead(bytes: Buffer, from: number): number {
  if (bytes[0] === 13 && bytes[1] === 10) return 2;
  const at = bytes.indexOf(emptyLine, from);
  return at < 0 ? -1 : at + emptyLine.length;
}

const firstBlockBytes = 1024;
const blockBytes = 64 * 1024;
/** A piece of so many bytes that fills so much of the memory behind it is kept as it is. */
const keptBytes = 1024;
const wellFilled = 0.5;

/** True for a piece that keeps little more memory than its own alive: nobody need copy it. */
function isWorthKeeping(piece: Buffer): boolean {
  return piece.length >= keptBytes && piece.length >= wellFilled * piece.buffer.byteLength;
}

/**
 * Bytes gathered into blocks. Small pieces are copied on purpose: a peer that sends one byte at a time would otherwise keep
 * a whole socket buffer alive with each of them.
 */
export class Blocks {
  #full: Buffer[] = [];
  #fullBytes = 0;
  #block = Buffer.alloc(0);
  #used = 0;
  #nextBytes = firstBlockBytes;

  /** Takes the piece, which must not be changed from now on. */
  add(chunk: Buffer): void {
    if (isWorthKeeping(chunk)) {
      this.#closeBlock();
      this.#addFull(chunk);
      return;
    }
    let at = 0;
    while (at < chunk.length) {
      if (this.#used === this.#block.length) this.#open(chunk.length - at);
      const copied = chunk.copy(this.#block, this.#used, at);
      this.#used += copied;
      at += copied;
    }
  }

  #open(wanted: number): void {
    this.#closeBlock();
    this.#block = Buffer.allocUnsafeSlow(Math.min(blockBytes, Math.max(this.#nextBytes, wanted)));
    this.#nextBytes = blockBytes;
  }

  #closeBlock(): void {
    if (this.#used > 0) this.#addFull(this.#block.subarray(0, this.#used));
    this.#block = this.#block.subarray(this.#used);
    this.#used = 0;
  }

  #addFull(block: Buffer): void {
    this.#full.push(block);
    this.#fullBytes += block.length;
  }

  /** Bytes in the blocks that are full. */
  get fullBytes(): number {
    return this.#fullBytes;
  }

  /** What is gathered, which stays. */
  all(): readonly Buffer[] {
    return this.#used === 0 ? this.#full : [...this.#full, this.#block.subarray(0, this.#used)];
  }

  /** The blocks that are full, handed over. */
  takeFull(): readonly Buffer[] {
    const full = this.#full;
    this.#full = [];
    this.#fullBytes = 0;
    return full;
  }

  /** Everything, handed over. */
  takeAll(): readonly Buffer[] {
    const all = this.all();
    this.#full = [];
    this.#fullBytes = 0;
    this.#block = Buffer.alloc(0);
    this.#used = 0;
    return all;
  }
}
