import { join } from 'node:path';
import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { writeDurable, writeFileAtomic } from '../../../core/disk/atomic.js';
import { asStorageProblem, faultCode, isMissing, isNameTaken, unlessMissing } from '../../../core/disk/fault.js';
import { type FileLayer, openRegularFile } from '../../../core/disk/file-layer.js';
import { folderSyncOf, makeFolder } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import { FileRemover } from '../../../core/spool/file-pool.js';
import type { LinkTarget, LoggedMessage, SpooledMessage } from '../../../core/spool/spool.js';
import type { QueuedEntry } from './queued-entry.js';
import { StoredEnvelope } from './envelope.js';

export const shards: readonly string[] = '0123456789abcdef'.split('');
export const bodySuffix = '.eml';
const uidPattern = /^[0-9A-Za-z][0-9A-Za-z_-]{0,127}$/;
/** Larger messages are read as streams. */
const smallBytes = 128 * 1024;
/** Milliseconds that `close` waits for removals. */
const timeoutMs = 1000;

const damaged = () => problem('not-found', 'The message is damaged.');

interface BodiesInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
  /** Name of the delivery target whose finder locates the messages after a crash. */
  readonly owner: string | undefined;
}

export interface PlacedBody {
  readonly placements: readonly LinkTarget[];
  /** Where the content to send begins in the file. */
  readonly traceOffset: number;
  readonly checksum: number | undefined;
}

/**
 * The messages of the queue: each is a file that is written once and removed when it is no longer needed. Many are
 * delivered before they are written to a file.
 */
export class Bodies {
  readonly #input: BodiesInput;
  readonly #reaper: FileRemover;
  /** Messages without a file yet: the commit log of the spool holds them. */
  readonly #kept = new Map<string, LoggedMessage>();
  #until = Infinity;

  constructor(input: BodiesInput) {
    this.#input = input;
    this.#reaper = new FileRemover((path) => this.#remove(path));
  }

  async open(): Promise<void> {
    const { folder, files } = this.#input;
    const sync = folderSyncOf(files);
    for (const shard of shards) await makeFolder(join(folder, shard), files, sync);
  }

  /**
   * Stores the message with its envelope: before the message in the same file if the file is not shared, else in a file
   * beside it.
   * @throws Problem `unavailable` when a dead process left a file of that name without an entry: the next sweep moves
   * it to quarantine
   */
  async place(entry: NewEntry, message: SpooledMessage): Promise<PlacedBody> {
    const { uid } = entry;
    const placement = this.placement(uid);
    const placements = [placement];
    const { traceOffset, checksum } = message;
    const line = encodeBodyEnvelope(entry, traceOffset, checksum);
    try {
      const kept = await message.keepInLog?.(placement, () => this.#kept.delete(uid), line);
      if (kept !== undefined) {
        if (kept.content !== undefined) this.#kept.set(uid, kept);
        return { placements, traceOffset: line.length + traceOffset, checksum };
      }
      await writeDurable(this.#input.files, this.envelopePath(uid), [line]);
      try {
        await message.link(placements);
      } catch (error) {
        await this.removeEnvelope(uid);
        throw error;
      }
      return { placements, traceOffset, checksum };
    } catch (error) {
      if (isNameTaken(error))
        throw problem('unavailable', { detail: 'What is left of it is in the way.', cause: error });
      throw asStorageProblem(error);
    }
  }

  /** Stores the content of an entry of another queue in the place of an older one. */
  async write(entry: NewEntry, content: Buffer): Promise<Omit<PlacedBody, 'placements'>> {
    const checksum = crc32(content);
    const line = encodeBodyEnvelope(entry, 0, checksum);
    try {
      const { files } = this.#input;
      await writeFileAtomic(this.path(entry.uid), Buffer.concat([line, content]), { files });
    } catch (error) {
      throw asStorageProblem(error);
    }
    return { traceOffset: line.length, checksum };
  }

  envelopePath(uid: string): string {
    return `${this.path(uid).slice(0, -bodySuffix.length)}${envelopeSuffix}`;
  }

  async removeEnvelope(uid: string): Promise<void> {
    await this.#remove(this.envelopePath(uid));
  }

  placement(uid: string): LinkTarget {
    if (!uidPattern.test(uid)) throw problem('invalid', 'The uid of an entry is made of letters, digits and hyphens.');
    const { folder, owner } = this.#input;
    const name = `${uid}${bodySuffix}`;
    return { folder: join(folder, shardOf(uid)), name, ...(owner !== undefined && { owner }) };
  }

  path(uid: string): string {
    const { folder, name } = this.placement(uid);
    return join(folder, name);
  }

  uidOf(name: string): string {
    return name.slice(0, -bodySuffix.length);
  }

  /** Path of the message with that file name; undefined when it does not exist. */
  async locate(name: string): Promise<string | undefined> {
    const path = this.path(this.uidOf(name));
    const there = await unlessMissing(this.#input.files.lstat(path));
    return there?.isFile() === true ? path : undefined;
  }

  /** What is wrong with the message; undefined when it exists with the expected size. */
  async complaint(entry: QueuedEntry): Promise<'missing' | 'damaged' | undefined> {
    if (this.#kept.has(entry.uid)) return undefined;
    try {
      const found = await this.#input.files.lstat(this.path(entry.uid));
      return found.isFile() && found.size === entry.traceOffset + entry.size ? undefined : 'damaged';
    } catch (error) {
      if (isMissing(error)) return 'missing';
      throw error;
    }
  }

  /** The content to send, in one piece; undefined for a large message. @throws Problem `not-found` */
  async bytes(entry: QueuedEntry): Promise<Buffer | undefined> {
    const kept = this.#kept.get(entry.uid)?.content;
    if (kept !== undefined) return kept.subarray(entry.traceOffset);
    if (entry.size > smallBytes) return undefined;
    return this.#found(async () => {
      const bytes = await readWhole(this.#input.files, this.path(entry.uid), entry.traceOffset);
      if (bytes.length !== entry.size) throw damaged();
      if (entry.checksum !== undefined && crc32(bytes) !== entry.checksum) throw damaged();
      return bytes;
    });
  }

  /** @throws Problem `not-found` */
  async stream(entry: QueuedEntry): Promise<Readable> {
    const bytes = await this.bytes(entry);
    if (bytes !== undefined) return Readable.from([bytes], { objectMode: false });
    return this.#found(async () => {
      if ((await this.complaint(entry)) !== undefined) throw damaged();
      const fd = await openRegularFile(this.path(entry.uid), this.#input.files);
      const { traceOffset, size, checksum } = entry;
      return new FileStream(this.#input.files, { fd, from: traceOffset, to: traceOffset + size, damaged, checksum });
    });
  }

  async #found<T>(read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (error) {
      if (isMissing(error)) throw problem('not-found', { detail: 'The message is not there any more.', cause: error });
      if (faultCode(error) === 'EFTYPE') throw damaged();
      throw asStorageProblem(error);
    }
  }

  /** Removes the message in the background. */
  remove(uid: string): void {
    const kept = this.#kept.get(uid);
    this.#kept.delete(uid);
    if (kept?.drop() === true) return;
    void this.#reaper.add(this.path(uid));
    void this.#reaper.add(this.envelopePath(uid));
  }

  async #remove(path: string): Promise<void> {
    const { files, log, clock } = this.#input;
    if (clock.monotonic() > this.#until) return;
    try {
      await files.unlink(path);
    } catch (error) {
      if (!isMissing(error))
        log.warn({ err: error }, 'a message of the queue could not be removed; the next start will');
    }
  }

  /** Finishes pending removals up to a time limit: the next start removes the rest. */
  close(): Promise<void> {
    this.#until = this.#input.clock.monotonic() + timeoutMs;
    return this.#reaper.idle();
  }
}

/**
 * Messages of the same second share a folder, and so its fsync; those of a day are spread over all folders. The time is
 * the first part of ids that this server creates.
 */
function shardOf(uid: string): string {
  return shards[crc32(uid.slice(0, 8)) % shards.length] ?? '0';
}

/** Each piece costs the start of a thread; up to two are in memory for each stream. */
const pieceBytes = 128 * 1024;

interface FilePart {
  /** Open for reading; the stream closes it, even when nothing was read. */
  readonly fd: number;
  readonly from: number;
  /** End offset, exclusive. */
  readonly to: number;
  /** Error when the file is shorter or its bytes have another checksum; when absent, the stream ends early instead. */
  readonly damaged?: () => Error;
  /** CRC-32 of the range; not checked when undefined. */
  readonly checksum?: number | undefined;
}

/** Reads a range of a file. */
export class FileStream extends Readable {
  readonly #files: FileLayer;
  readonly #part: FilePart;
  #at: number;
  #checksum = 0;
  #reading: Promise<void> | undefined;

  constructor(files: FileLayer, part: FilePart) {
    super({ highWaterMark: pieceBytes });
    this.#files = files;
    this.#part = part;
    this.#at = part.from;
  }

  override _read(): void {
    this.#reading = this.#next().catch((error: unknown) => {
      this.destroy(error instanceof Error ? error : new Error('a file cannot be read', { cause: error }));
    });
  }

  async #next(): Promise<void> {
    const { fd, to, damaged, checksum } = this.#part;
    const wanted = Math.min(pieceBytes, to - this.#at);
    const piece = wanted > 0 ? await readAt(this.#files, fd, this.#at, wanted) : Buffer.alloc(0);
    if (this.destroyed) return;
    if (piece.length < wanted && damaged !== undefined) throw damaged();
    this.#at += piece.length;
    if (checksum !== undefined) {
      this.#checksum = crc32(piece, this.#checksum);
      // Checked before the last piece is emitted, so that the consumer does not take it for the end of a message.
      if (this.#at >= to && this.#checksum !== checksum && damaged !== undefined) throw damaged();
    }
    this.push(piece.length === 0 ? null : piece);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    void this.#close(error, done);
  }

  /** Waits for a pending read: a closed descriptor's number might belong to another file by then. */
  async #close(error: Error | null, done: (error?: Error | null) => void): Promise<void> {
    let failure = error;
    try {
      await this.#reading;
      await this.#files.close(this.#part.fd);
    } catch (failed) {
      failure ??= failed instanceof Error ? failed : new Error('a file cannot be closed', { cause: failed });
    }
    done(failure);
  }
}

/** The bytes of a file from offset `from`. */
export async function readWhole(files: FileLayer, path: string, from = 0): Promise<Buffer> {
  const fd = await openRegularFile(path, files);
  try {
    const { size } = await files.lstat(path);
    return await readAt(files, fd, from, Math.max(0, size - from));
  } finally {
    await files.close(fd);
  }
}

/** Up to `bytes` bytes at that offset; fewer at the end of the file. */
export async function readAt(files: FileLayer, fd: number, at: number, bytes: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(bytes);
  let done = 0;
  while (done < bytes) {
    const count = await files.read(fd, buffer.subarray(done), at + done);
    if (count === 0) break;
    done += count;
  }
  return buffer.subarray(0, done);
}

/**
 * The envelope is stored with the message, so that the entry can be recreated when the journal is lost: in the first
 * line of the file, or in a file beside it where the message file is shared with mailboxes.
 */
const field = 'Postern-Envelope: ';

export const envelopeSuffix = '.envelope';

const sumBytes = 8;

const maxLineBytes = 8 * 1024 * 1024;

const Body = z.object({
  envelope: StoredEnvelope,
  /** Where the content to send begins, counted from the end of this line. */
  traceOffset: z.int().min(0),
  checksum: z.exactOptional(z.number()),
});

type BodyEnvelope = z.output<typeof Body>;

/** One line with its line end. */
function encodeBodyEnvelope(envelope: NewEntry, traceOffset: number, checksum: number | undefined): Buffer {
  const json = JSON.stringify({ envelope, traceOffset, ...(checksum !== undefined && { checksum }) });
  return Buffer.from(`${field}${sumOf(json)} ${json}\r\n`);
}

/** Undefined when it is damaged, or when the message was stored by a version without envelopes. */
export function decodeBodyEnvelope(line: Buffer): BodyEnvelope | undefined {
  const text = line.toString('utf8').trimEnd();
  const json = text.slice(field.length + sumBytes + 1);
  if (!text.startsWith(field) || text.slice(field.length, field.length + sumBytes) !== sumOf(json)) return undefined;
  try {
    return Body.parse(JSON.parse(json));
  } catch {
    return undefined;
  }
}

/** The envelope line at the beginning of a file; empty when there is none. */
export async function envelopeLineOf(files: FileLayer, path: string): Promise<Buffer> {
  const fd = await openRegularFile(path, files);
  try {
    let line = Buffer.alloc(0);
    while (line.length < maxLineBytes) {
      const piece = await readAt(files, fd, line.length, pieceBytes);
      line = Buffer.concat([line, piece]);
      if (!line.subarray(0, field.length).equals(Buffer.from(field))) break;
      const end = line.indexOf(10);
      if (end >= 0) return line.subarray(0, end + 1);
      if (piece.length < pieceBytes) break;
    }
    return Buffer.alloc(0);
  } finally {
    await files.close(fd);
  }
}

function sumOf(json: string): string {
  return crc32(json).toString(16).padStart(sumBytes, '0');
}
