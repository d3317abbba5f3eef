import { createHash, randomBytes } from 'node:crypto';
import { closeSync, fstatSync, ftruncateSync, openSync, readSync, renameSync, statSync, writeSync } from 'node:fs';
import { idOfRecord, isIntact, maxRecordBytes, recordLength } from './summary-record.js';
import type { TimeSlice } from '../../../core/concurrency.js';

/** Before the records: eight letters, eight bytes of a hash of the folder, and a mark that is unique for each log. */
const magic = Buffer.from('PSTNSUM1');
export const logHeadBytes = 24;
const markBytes = 8;
/** Bytes that are buffered before they are written. */
const gatherBytes = 256 * 1024;
/** Maximum bytes of memory while the file cannot be written. */
const maxGathered = 16 * 1024 * 1024;
const averageRecordBytes = 2048;
const sliceBytes = 1024 * 1024;
/** For the slice that a scan is showing: to allocate it anew takes longer than to search it. */
const scanned = Buffer.allocUnsafeSlow(sliceBytes + maxRecordBytes);
/** Offsets have 32 bits. */
const maxLogBytes = 0xf000_0000;

export interface SummaryLogFile {
  /** Undefined for a log in memory. */
  readonly path: string | undefined;
  /** Relative to the folder of the mailboxes. */
  readonly folder: string;
}

/** The fixed part of a log's head. */
function headOf(folder: string): Buffer {
  return Buffer.concat([magic, createHash('sha256').update(folder).digest().subarray(0, 8)]);
}

/**
 * The summaries of a folder's messages, one record after the other; the rows hold the offsets. Records are only added.
 * They are buffered in memory: those of a small folder are never written.
 */
export class SummaryLog {
  /** Path of the file; undefined for a log in memory. */
  #path: string | undefined;
  readonly #head: Buffer;
  #fd: number | undefined;
  #mark: Buffer;
  /** Bytes in the file. */
  #written: number;
  #gathered = Buffer.alloc(0);
  #used = 0;
  #records = 0;
  #isFull = false;
  /** Records before this offset are known to be intact. */
  #checked = logHeadBytes;

  private constructor({ path, folder }: SummaryLogFile, fd: number | undefined, mark: Buffer, written: number) {
    this.#path = path;
    this.#head = headOf(folder);
    this.#fd = fd;
    this.#mark = mark;
    this.#written = written;
  }

  /** A new log, in memory until the buffer is full. */
  static begin(place: SummaryLogFile): SummaryLog {
    return new SummaryLog(place, undefined, randomBytes(markBytes), logHeadBytes);
  }

  /** Undefined when there is no readable log. */
  static open(place: SummaryLogFile & { readonly path: string }): SummaryLog | undefined {
    let fd: number | undefined;
    try {
      fd = openSync(place.path, 'r+');
      const head = Buffer.alloc(logHeadBytes);
      const { size } = fstatSync(fd);
      const isWhole = readSync(fd, head, 0, logHeadBytes, 0) === logHeadBytes;
      if (isWhole && head.subarray(0, -markBytes).equals(headOf(place.folder))) {
        return new SummaryLog(place, fd, Buffer.from(head.subarray(-markBytes)), size);
      }
    } catch {
      // An unreadable log is ignored: the messages can be read again.
    }
    if (fd !== undefined) closeSync(fd);
    return undefined;
  }

  /** Unique mark of this log, in hexadecimal. */
  get mark(): string {
    return this.#mark.toString('hex');
  }

  /** Offset after the last record. */
  get end(): number {
    return this.#written + this.#used;
  }

  /** Number of records, including those of removed messages. */
  get records(): number {
    return this.#records;
  }

  /** False when the file was removed or replaced. */
  get isInPlace(): boolean {
    if (this.#fd === undefined || this.#path === undefined) return true;
    try {
      return statSync(this.#path).ino === fstatSync(this.#fd).ino;
    } catch {
      return false;
    }
  }

  /** No record can be added. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Bytes of memory. */
  get memory(): number {
    return this.#gathered.length;
  }

  /** Offset of the record; 0 when there is no room for it. */
  append(record: Buffer): number {
    if (this.#used + record.length > gatherBytes) this.#tryFlush();
    this.#isFull = this.#used + record.length > maxGathered || this.end + record.length > maxLogBytes;
    if (this.#isFull) return 0;
    if (this.#used + record.length > this.#gathered.length) this.#grow(this.#used + record.length);
    record.copy(this.#gathered, this.#used);
    this.#used += record.length;
    this.#records++;
    return this.end - record.length;
  }

  /** The record at that offset; undefined when there is none that is intact. */
  read(offset: number): Buffer | undefined {
    const head = this.#bytes(offset, Math.min(this.end, offset + averageRecordBytes));
    const length = recordLength(head, 0);
    if (length === undefined || offset + length > this.end) return undefined;
    const record = length <= head.length ? head.subarray(0, length) : this.#bytes(offset, offset + length);
    return isIntact(record) ? record : undefined;
  }

  /**
   * Visits all records from an offset on, in slices of whole records, each verified. Returns false when it found
   * invalid bytes, where it stops.
   * @param show reads the slice at once: its bytes are overwritten later
   */
  async scan(from: number, show: (slice: Buffer, offset: number) => void, timeSlice: TimeSlice): Promise<boolean> {
    const end = this.end;
    let at = from;
    while (at < end) {
      const bytes = this.#bytes(at, Math.min(end, at + scanned.length), scanned);
      const length = this.#whole(bytes, at);
      if (length === 0) return false;
      show(bytes.subarray(0, length), at);
      at += length;
      await timeSlice.yieldIfDue();
    }
    return true;
  }

  /**
   * For an opened log. Returns the offsets of the records after the known ones, by id; truncates the file at invalid
   * bytes.
   */
  async adopt(from: number, records: number, timeSlice: TimeSlice): Promise<ReadonlyMap<string, number>> {
    const found = new Map<string, number>();
    let end = from;
    const take = (slice: Buffer, offset: number): void => {
      for (let at = 0; at < slice.length; at += recordLength(slice, at) ?? slice.length) {
        found.set(idOfRecord(slice.subarray(at)), offset + at);
      }
      end = offset + slice.length;
    };
    if (!(await this.scan(from, take, timeSlice)) && this.#fd !== undefined) {
      ftruncateSync(this.#fd, end);
      this.#written = end;
    }
    this.#records = records + found.size;
    return found;
  }

  /** Writes the buffer. @throws errors of the file system */
  flush(): void {
    const fd = this.#fd ?? this.#create();
    if (fd === undefined) return;
    let at = 0;
    while (at < this.#used) at += writeSync(fd, this.#gathered, at, this.#used - at, this.#written + at);
    this.#written += this.#used;
    this.#used = 0;
    this.#gathered = Buffer.alloc(0);
  }

  /** Renames its file, replacing an existing one. */
  moveTo(path: string): void {
    this.flush();
    if (this.#path !== undefined) renameSync(this.#path, path);
    this.#path = path;
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #create(): number | undefined {
    if (this.#path === undefined) return undefined;
    const fd = openSync(this.#path, 'w+', 0o600);
    try {
      writeSync(fd, Buffer.concat([this.#head, this.#mark]));
    } catch (error) {
      closeSync(fd);
      throw error;
    }
    this.#fd = fd;
    return fd;
  }

  #tryFlush(): void {
    try {
      this.flush();
    } catch {
      // The records stay in memory up to the limit.
    }
  }

  #grow(bytes: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.max(bytes, Math.min(maxGathered, this.#gathered.length * 2), 4096));
    this.#gathered.copy(grown, 0, 0, this.#used);
    this.#gathered = grown;
  }

  #bytes(start: number, end: number, into?: Buffer): Buffer {
    if (start >= this.#written) {
      return this.#gathered.subarray(start - this.#written, Math.min(this.#used, end - this.#written));
    }
    const length = Math.min(end, this.#written) - start;
    const bytes = into?.subarray(0, length) ?? Buffer.allocUnsafe(length);
    const read = this.#fd === undefined ? 0 : readSync(this.#fd, bytes, 0, length, start);
    const stored = bytes.subarray(0, read);
    const more = end - this.#written;
    return more <= 0 || read < length
      ? stored
      : Buffer.concat([stored, this.#gathered.subarray(0, Math.min(more, this.#used))]);
  }

  /** Number of bytes of whole records at the start of a slice. */
  #whole(bytes: Buffer, offset: number): number {
    let at = 0;
    while (at < sliceBytes) {
      const length = recordLength(bytes, at);
      if (length === undefined || at + length > bytes.length) break;
      const isNew = offset + at >= this.#checked;
      if (isNew && !isIntact(bytes.subarray(at, at + length))) break;
      at += length;
    }
    // Records are verified in order, so this only advances from the start or the last position.
    if (offset <= this.#checked) this.#checked = Math.max(this.#checked, offset + at);
    return at;
  }
}
