import { Readable } from 'node:stream';
import { type Semaphore, SharedPermit } from '../concurrency.js';
import { type FileLayer, writeAll } from '../disk/file-layer.js';
import type { FolderSync } from '../disk/folder.js';
import type { Log } from '../log/log.js';
import type { FilePool, FileRemover, NewFileKind } from './file-pool.js';
import type { MessageLog } from './message-log.js';
import type { SpoolWriter } from './spool.js';

/** What the files and messages of a spool share. */
export interface SpoolContext {
  readonly files: FileLayer;
  readonly folders: FolderSync;
  readonly log: Log;
  readonly pool: Pick<FilePool, 'create'>;
  readonly remover: FileRemover;
  /** Undefined: every message becomes a durable file before it is linked. */
  readonly messages: MessageLog | undefined;
  /** Messages whose files are open while a peer sends; a message that is rewritten has two files. */
  readonly receiving: Semaphore;
  /** Files that are open while they are made durable. */
  readonly syncing: Semaphore;
  /** Several messages are being made durable: a blocking call may wait for the disk. */
  readonly isConcurrent: () => boolean;
  /** Larger messages are written while they arrive, this many bytes at a time. */
  readonly memoryBytes: number;
  /** With more bytes waiting for the disk, the writer has to wait. */
  readonly backlogBytes: number;
  /** A new path in the spool. */
  readonly newPath: () => string;
  /** `source` is the file of the message that the new one replaces. */
  readonly create: (returnPath: Buffer, trace: Buffer, source: SpoolFile) => SpoolWriter | Promise<SpoolWriter>;
  /** Reports a fault of the disk to health. */
  readonly failed: (error: unknown) => void;
}

const readBytes = 64 * 1024;
const releasedError = (): Error => new Error('the message was released');

/**
 * The bytes of one message. A small one is in memory until it is written at once; a larger one is written while it
 * arrives.
 */
export class SpoolFile {
  readonly #context: SpoolContext;
  /** Shared with the source: who waited for a second one while holding the first could wait for others who do the same. */
  #permit: SharedPermit | undefined;
  #path: string | undefined;
  readonly #blocks = new Blocks();
  #size = 0;
  #fd: number | undefined;
  /** True once bytes have left memory, or have tried to. */
  #spilled = false;
  #queue: Buffer[] = [];
  #backlog = 0;
  #pumping: Promise<void> | undefined;
  #drained: (() => void)[] = [];
  #failure: Error | undefined;
  #stored: Promise<void> | undefined;
  #synced: Promise<void> | undefined;
  #released = false;

  /** @param source the file of the message that this one replaces */
  constructor(context: SpoolContext, source?: SpoolFile) {
    this.#context = context;
    if (source !== undefined) this.#permit = source.#sharedPermit;
  }

  get #sharedPermit(): SharedPermit {
    this.#permit ??= new SharedPermit(this.#context.receiving);
    return this.#permit;
  }

  /** Chosen when first needed: many messages never become a spool file. */
  get path(): string {
    this.#path ??= this.#context.newPath();
    return this.#path;
  }

  get size(): number {
    return this.#size;
  }

  /** The whole message while it is in memory; undefined once some of it is written, or it was released. */
  get memory(): readonly Buffer[] | undefined {
    return this.#spilled || this.#released ? undefined : this.#blocks.all();
  }

  write(chunk: Buffer): Promise<void> | void {
    if (this.#released) return Promise.reject(releasedError());
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    this.#blocks.add(chunk);
    this.#size += chunk.length;
    const { memoryBytes } = this.#context;
    if (this.#spilled ? this.#blocks.fullBytes < memoryBytes : this.#size <= memoryBytes) return;
    this.#enqueue(this.#blocks.takeFull());
    if (this.#backlog > this.#context.backlogBytes) return this.#waitUntilDrained();
  }

  /** Resolves when every byte is written, unless the message is small enough to stay in memory. */
  async finish(): Promise<void> {
    if (this.#released) throw releasedError();
    if (this.#spilled) this.#enqueue(this.#blocks.takeAll());
    await this.#pumping;
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Writes the bytes in memory to the file, not durably. */
  store(): Promise<void> {
    if (this.#released) return Promise.reject(releasedError());
    this.#stored ??= this.#synced ?? this.#storeMemory();
    return this.#stored;
  }

  /**
   * Makes the spool file durable. Tried once: after a failed fsync the same descriptor would report success without
   * having written anything.
   */
  sync(): Promise<void> {
    if (this.#released) return Promise.reject(releasedError());
    this.#synced ??= this.#spilled ? this.#syncSpilled() : this.#syncMemory();
    return this.#synced;
  }

  /**
   * Renames the spool file and gives it up: it is written again when it is needed again. False, without a rename, for a
   * message that is not wholly in memory.
   */
  async moveTo(to: string, rename: (from: string, to: string) => Promise<void>): Promise<boolean> {
    if (this.memory === undefined) return false;
    await rename(this.path, to);
    this.#path = undefined;
    this.#stored = undefined;
    this.#synced = undefined;
    return true;
  }

  /** The bytes from `offset` on. The file is opened at the first read and closed with the stream. */
  open(offset: number): Readable {
    const source = this.#spilled ? this.#readFile(offset) : this.#readMemory(offset);
    return Readable.from(source, { objectMode: false, highWaterMark: readBytes });
  }

  /** Frees the memory and the descriptor, and removes the spool file. Never rejects; idempotent. */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    this.#queue = [];
    await this.#pumping;
    this.#backlog = 0;
    this.#notifyDrained();
    await this.#stored?.catch(() => undefined);
    await this.#synced?.catch(() => undefined);
    await this.#close().catch(() => undefined);
    const onDisk = this.#spilled || this.#stored !== undefined || this.#synced !== undefined;
    this.#blocks.takeAll();
    if (onDisk) await this.#context.remover.add(this.path);
  }

  #enqueue(blocks: readonly Buffer[]): void {
    if (blocks.length === 0 || this.#failure !== undefined) return;
    this.#spilled = true;
    for (const block of blocks) this.#backlog += block.length;
    this.#queue.push(...blocks);
    this.#pumping ??= this.#pump();
  }

  /**
   * Never rejects: a failure is kept in `#failure` for the next write or finish. `#pumping` is cleared in the same turn
   * in which the queue is found empty, so that no block stays in it.
   */
  async #pump(): Promise<void> {
    try {
      this.#fd ??= await this.#openForWriting();
      while (this.#queue.length > 0) {
        const batch = this.#queue;
        this.#queue = [];
        await writeAll(this.#context.files, this.#fd, batch);
        for (const block of batch) this.#backlog -= block.length;
        this.#notifyDrained();
      }
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
      this.#notifyDrained();
    }
    this.#pumping = undefined;
  }

  async #openForWriting(): Promise<number> {
    await this.#sharedPermit.acquire();
    try {
      return await this.#context.files.open(this.path, 'wx', 0o600);
    } catch (error) {
      this.#sharedPermit.release();
      throw error;
    }
  }

  async #waitUntilDrained(): Promise<void> {
    await new Promise<void>((resolve) => this.#drained.push(resolve));
    if (this.#released) throw releasedError();
    if (this.#failure !== undefined) throw this.#failure;
  }

  #notifyDrained(): void {
    if (this.#failure === undefined && this.#backlog > this.#context.backlogBytes / 2) return;
    for (const resolve of this.#drained.splice(0)) resolve();
  }

  async #storeMemory(): Promise<void> {
    const { files } = this.#context;
    const fd = await this.#create('plain');
    try {
      await files.writeNow(fd, this.#blocks.all());
    } finally {
      await files.close(fd);
    }
  }

  async #syncMemory(): Promise<void> {
    await this.#stored;
    const { syncing, files } = this.#context;
    await syncing.acquire();
    try {
      await (this.#stored === undefined ? this.#writeDurable(files) : fsyncFile(files, this.path));
    } finally {
      syncing.release();
    }
  }

  /** A failing close is a failure: some file systems report a failed write there. */
  async #writeDurable(files: FileLayer): Promise<void> {
    const fd = await this.#create('durable');
    try {
      await writeAll(files, fd, this.#blocks.all());
    } catch (error) {
      await files.close(fd).catch(() => undefined);
      throw error;
    }
    await files.close(fd);
  }

  /** Creates the file; a file from the pool brings its own path. */
  async #create(kind: NewFileKind): Promise<number> {
    const { path, fd } = await this.#context.pool.create(kind, this.#path);
    this.#path = path;
    return fd;
  }

  async #syncSpilled(): Promise<void> {
    try {
      if (this.#fd !== undefined) await this.#context.files.fsync(this.#fd);
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
    this.#sharedPermit.release();
    await this.#context.files.close(fd);
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
    const { files } = this.#context;
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

/** Collects the header block of a message while it arrives, including its empty line, or the first `limit` bytes. */
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
    if (end >= 0 && end <= this.#limit && isKeptAsIs(chunk)) {
      this.#bytes = chunk.subarray(0, end);
      this.#used = end;
      this.#complete = true;
      return;
    }
    this.#append(end < 0 ? chunk : chunk.subarray(0, end));
    this.#truncate(end < 0 ? endOfHead(this.head, Math.max(0, known - emptyLine.length + 1)) : this.#used);
  }

  #truncate(end: number): void {
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

/** Offset after the empty line that ends the header block, or -1. */
function endOfHead(bytes: Buffer, from: number): number {
  if (bytes[0] === 13 && bytes[1] === 10) return 2;
  const at = bytes.indexOf(emptyLine, from);
  return at < 0 ? -1 : at + emptyLine.length;
}

const firstBlockBytes = 1024;
const blockBytes = 64 * 1024;
/** A chunk of at least this size, and this share of the memory behind it, is kept without a copy. */
const minKeptBytes = 1024;
const minFilled = 0.5;

/** True for a chunk that keeps little more memory alive than its own bytes, so that no copy is needed. */
function isKeptAsIs(chunk: Buffer): boolean {
  return chunk.length >= minKeptBytes && chunk.length >= minFilled * chunk.buffer.byteLength;
}

/**
 * Collects bytes into blocks. Small chunks are copied: a peer that sends one byte at a time would otherwise keep a
 * whole socket buffer alive with each of them.
 */
export class Blocks {
  #full: Buffer[] = [];
  #fullBytes = 0;
  #block = Buffer.alloc(0);
  #used = 0;
  #nextBytes = firstBlockBytes;

  /** The chunk must not be changed any more. */
  add(chunk: Buffer): void {
    if (isKeptAsIs(chunk)) {
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

  /** Bytes in full blocks. */
  get fullBytes(): number {
    return this.#fullBytes;
  }

  /** All bytes; they stay here. */
  all(): readonly Buffer[] {
    return this.#used === 0 ? this.#full : [...this.#full, this.#block.subarray(0, this.#used)];
  }

  /** Full blocks; they are removed here. */
  takeFull(): readonly Buffer[] {
    const full = this.#full;
    this.#full = [];
    this.#fullBytes = 0;
    return full;
  }

  /** All bytes; they are removed here. */
  takeAll(): readonly Buffer[] {
    const all = this.all();
    this.#full = [];
    this.#fullBytes = 0;
    this.#block = Buffer.alloc(0);
    this.#used = 0;
    return all;
  }
}
