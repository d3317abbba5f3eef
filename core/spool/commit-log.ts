import { basename } from 'node:path';
import { type Clock, systemClock } from '../clock.js';
import { isShortage } from '../disk/fault.js';
import type { FileLayer } from '../disk/file-layer.js';
import type { Log } from '../log/log.js';
import {
  damageOf,
  type FoundSegments,
  type FreeSegment,
  type LogDamage,
  LogFolder,
  type SealedSegment,
} from './log-folder.js';
import {
  totalBytes,
  clearSegment,
  type LogRecord,
  recordHeader,
  recordHeaderBytes,
  Segment,
  segmentHeaderBytes,
  type UsedSegment,
} from './segments.js';

export interface CommitLogOptions {
  readonly files: FileLayer;
  readonly log: Log;
  /** Size of a segment file, which is preallocated. */
  readonly segmentBytes?: number;
  /** The log is full when this many segments hold unreleased records. */
  readonly maxSegments?: number;
  readonly clock?: Clock;
  /** Free segments are removed after this time without an append. Milliseconds. */
  readonly idleMs?: number;
}

const defaults = { clock: systemClock, idleMs: 60_000, segmentBytes: 16 * 1024 * 1024, maxSegments: 16 };

/** Kind of the records that say up to which number all records are released. */
const releaseKind = 0;
const numberBytes = 6;
/** Records with no more payload may use the last bytes of a segment, so that a full log can still release. */
const maxSmallBytes = 64;
const reservedForSmall = 16 * 1024;
/** Bytes written in one call. */
const batchBytes = 4 * 1024 * 1024;
/** A full log is worth another try after this time. */
const retryMs = 10_000;

interface PendingRecord {
  readonly kind: number;
  readonly payload: readonly Buffer[];
  readonly bytes: number;
  readonly resolve: (number: number) => void;
  readonly reject: (error: Error) => void;
}

/**
 * A write-ahead log: all waiting records are written by one call and made durable by one fdatasync. Its owner calls
 * `replay` after the start, appends records, and releases those that it no longer needs; their segment files are used
 * again. A crash loses nothing that was acknowledged.
 */
export class CommitLog {
  readonly #folder: LogFolder;
  readonly #files: FileLayer;
  readonly #maxSegments: number;
  #maxPayload: number;
  /** Records that were acknowledged, not released, and cannot be read. */
  readonly damage: readonly LogDamage[];
  readonly #clock: Clock;
  readonly #idleMs: number;
  #appendedAt: number;
  readonly #log: Log;
  readonly #free: FreeSegment[];
  readonly #sealed: SealedSegment[];
  #active: Segment | undefined;
  /** When the first record of a segment was written, by file name. */
  readonly #beganAt = new Map<string, number>();
  #listWritten: Promise<void> = Promise.resolve();
  #creating: Promise<void> | undefined;
  #waiting: PendingRecord[] = [];
  #flushing: Promise<void> | undefined;
  #nextNumber: number;
  #acknowledged: number;
  #released: number;
  /** When no segment was available; undefined once there is one. */
  #fullAt: number | undefined;
  /** Newest record that is not a release. */
  #newestRecord: number;

  private constructor(
    folder: LogFolder,
    found: FoundSegments & {
      readonly released: number;
      readonly newest: number;
      readonly damage: readonly LogDamage[];
    },
    { files, log, clock, idleMs, segmentBytes, maxSegments }: CommitLogOptions & typeof defaults,
  ) {
    this.#folder = folder;
    this.#files = files;
    this.#log = log;
    this.#clock = clock;
    this.#idleMs = idleMs;
    this.#appendedAt = clock.monotonic();
    this.damage = found.damage;
    for (const { name, at } of found.used) this.#beganAt.set(name, at);
    this.#maxSegments = maxSegments;
    this.#maxPayload = segmentBytes - segmentHeaderBytes - recordHeaderBytes - reservedForSmall;
    // Otherwise a process that crashes repeatedly would need one more segment each time.
    const isSpent = ({ last, isDamaged }: SealedSegment): boolean => last <= found.released && !isDamaged;
    this.#free = [...found.free, ...found.sealed.filter(isSpent)].filter(({ capacity }) => capacity >= segmentBytes);
    this.#sealed = found.sealed.filter((segment) => !isSpent(segment));
    this.#released = found.released;
    this.#newestRecord = found.newest;
    this.#acknowledged = Math.max(0, ...found.sealed.map(({ last }) => last));
    this.#nextNumber = this.#acknowledged + 1;
  }

  /** Reads the segments. Unknown or broken files are set aside. */
  static async open(folder: string, options: CommitLogOptions): Promise<CommitLog> {
    const settings = { ...defaults, ...options };
    const logFolder = new LogFolder(folder, settings.files, settings.log, settings.segmentBytes);
    let released = 0;
    let newest = 0;
    const found = await logFolder.open(({ kind, number, payload }) => {
      if (kind === releaseKind) released = Math.max(released, payload.readUIntLE(0, numberBytes));
      else newest = Math.max(newest, number);
    });
    const damage = damageOf(found, released, settings.clock.now());
    for (const { note, sentence } of damage) {
      settings.log.error({ folder }, sentence);
      await logFolder.note(note, sentence);
    }
    return new CommitLog(logFolder, { ...found, released, newest, damage }, settings);
  }

  /** Number of the newest record that is durable; 0 before the first. */
  get last(): number {
    return this.#acknowledged;
  }

  /** True while there are unreleased records. */
  get hasUnreleased(): boolean {
    return this.#newestRecord > this.#released;
  }

  /** No segment was available a short while ago. False after that, so that a record is tried again. */
  get isFull(): boolean {
    return this.#fullAt !== undefined && this.#clock.monotonic() - this.#fullAt < retryMs;
  }

  /** Maximum payload of a record; negative once the log is closed. */
  get maxPayload(): number {
    return this.#maxPayload;
  }

  /** Visits each durable record that is not released, in order. Reads from the disk each time. */
  async replay(visit: (record: LogRecord) => Promise<void> | void): Promise<void> {
    const active = this.#active;
    const unread = this.#sealed.filter(({ last }) => last > this.#released);
    for (const segment of active === undefined ? unread : [...unread, active]) {
      for (const record of await this.#folder.records(segment)) {
        if (record.number > this.#released && record.kind !== releaseKind) await visit(record);
      }
    }
  }

  /**
   * Resolves with the number of the record when it is durable. Rejects with `LogFull` when nothing was written, and
   * with `AppendFailed` when the record may or may not be on the disk.
   * @param kind 1 to 255, defined by the owner
   */
  append(kind: number, payload: readonly Buffer[]): Promise<number> {
    const bytes = recordHeaderBytes + totalBytes(payload);
    if (bytes > this.#maxPayload + recordHeaderBytes) return Promise.reject(new LogFull('too large, or closed'));
    this.#appendedAt = this.#clock.monotonic();
    const appended = new Promise<number>((resolve, reject) => {
      this.#waiting.push({ kind, payload, bytes, resolve, reject });
    });
    this.#flushing ??= this.#flush();
    return appended;
  }

  /** Releases all records up to that number, and uses their segments again. Resolves when the release is durable. */
  async release(number: number): Promise<void> {
    if (number > this.#released) {
      const payload = Buffer.alloc(numberBytes);
      payload.writeUIntLE(number, 0, numberBytes);
      await this.append(releaseKind, [payload]);
      this.#released = Math.max(this.#released, number);
    }
    for (let oldest = this.#sealed[0]; oldest !== undefined; oldest = this.#sealed[0]) {
      if (oldest.last > this.#released) return;
      this.#sealed.shift();
      await this.#reuse(oldest);
    }
  }

  /**
   * Creates a segment ahead when none is free, so that the next record need not wait or a full log accepts records
   * again.
   */
  async prepare(): Promise<void> {
    if ((this.#active === undefined || this.#fullAt !== undefined) && this.#free.length === 0) await this.#create();
  }

  /** Removes free segments, all but one, when nothing was appended for a while. */
  async shrink(): Promise<void> {
    if (this.#flushing !== undefined || this.#clock.monotonic() - this.#appendedAt < this.#idleMs) return;
    await this.#creating?.catch(() => undefined);
    while (this.#free.length > (this.#active === undefined ? 1 : 0)) {
      const segment = this.#free.pop();
      if (segment !== undefined) await this.#files.unlink(segment.path);
    }
  }

  /** Writes a note of damage next to the files that are set aside. */
  note(name: string, sentence: string): Promise<void> {
    return this.#folder.note(name, sentence);
  }

  /** Number of files in `aside`: those that cannot be read, and notes of damage. */
  countAside(): Promise<number> {
    return this.#folder.countAside();
  }

  /**
   * Refuses further records and waits for those appended. When all are released, the next start has nothing to read.
   */
  async close(): Promise<void> {
    this.#maxPayload = -Infinity;
    await this.#flushing;
    await this.#creating?.catch(() => undefined);
    const active = this.#active;
    this.#active = undefined;
    await active?.close();
    await this.#listWritten;
    if (this.hasUnreleased) return;
    try {
      // Written first: a listed segment without a header would be damage.
      await this.#folder.writeUsed([]);
    } catch (error) {
      this.#log.warn({ err: error }, 'the commit log could not be cleared; the next start reads it');
      return;
    }
    const used = [...this.#sealed, ...this.#free, ...(active === undefined ? [] : [active])];
    for (const { path } of used) await clearSegment(path, this.#files);
  }

  async #flush(): Promise<void> {
    // Records appended in the same turn of the event loop share a write.
    await new Promise(setImmediate);
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      try {
        await this.#write(await this.#segmentFor(first));
      } catch (error) {
        for (const { reject } of this.#refuse(first)) reject(new LogFull('no segment is available', { cause: error }));
      }
    }
    this.#flushing = undefined;
  }

  /** Small records may still fit when larger ones do not. */
  #refuse(first: PendingRecord): readonly PendingRecord[] {
    const refused = isSmall(first) ? this.#waiting : this.#waiting.filter((record) => !isSmall(record));
    this.#waiting = this.#waiting.filter((record) => !refused.includes(record));
    return refused;
  }

  #takeBatch(room: number): readonly PendingRecord[] {
    let count = 0;
    let bytes = 0;
    for (const record of this.#waiting) {
      if (count > 0 && (bytes > batchBytes || !fits(record, room - bytes))) break;
      bytes += record.bytes;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }

  /** The active segment when the record fits, or else a new one. */
  async #segmentFor(record: PendingRecord): Promise<Segment> {
    if (this.#active !== undefined && fits(record, this.#active.room)) return this.#active;
    await this.#creating;
    if (this.#free.length === 0) await this.#create();
    const next = this.#free.shift();
    if (next === undefined) {
      this.#fullAt = this.#clock.monotonic();
      throw new Error('all segments are in use');
    }
    const segment = await Segment.begin(next.path, this.#files, next.capacity, this.#nextNumber).catch(
      (error: unknown) => {
        if (isShortage(error)) this.#free.unshift(next);
        throw error;
      },
    );
    if (this.#active !== undefined) await this.#seal(this.#active);
    this.#active = segment;
    if (this.#free.length === 0) this.#createAhead();
    return segment;
  }

  async #write(segment: Segment): Promise<void> {
    const batch = this.#takeBatch(segment.room);
    const parts: Buffer[] = [];
    let bytes = 0;
    const first = this.#nextNumber;
    for (const { kind, payload, bytes: size } of batch) {
      const number = this.#nextNumber++;
      const header = recordHeader({ mark: segment.mark, number, kind, acknowledged: this.#acknowledged, payload });
      parts.push(header, ...payload);
      bytes += size;
      if (kind !== releaseKind) this.#newestRecord = number;
    }
    segment.last = this.#nextNumber - 1;
    try {
      await segment.write(parts, bytes);
    } catch (error) {
      await this.#seal(segment);
      batch.forEach(({ reject }, index) => reject(new AppendFailed(first + index, error)));
      return;
    }
    this.#acknowledged = segment.last;
    if (first === segment.first) this.#segmentBegan(segment);
    batch.forEach(({ resolve }, index) => resolve(first + index));
  }

  /** Nothing waits for the list, which only serves to detect damage. */
  #segmentBegan(segment: Segment): void {
    this.#beganAt.set(basename(segment.path), this.#clock.now());
    this.#listWritten = this.#listWritten
      .then(() => this.#writeList())
      .catch((error: unknown) => {
        this.#log.warn({ err: error }, 'the segments of the commit log could not be listed');
      });
  }

  #writeList(): Promise<void> {
    const segments = this.#active === undefined ? this.#sealed : [...this.#sealed, this.#active];
    const used = segments.map(({ path, first }): UsedSegment => {
      const name = basename(path);
      return { name, first, at: this.#beganAt.get(name) ?? this.#clock.now() };
    });
    return this.#folder.writeUsed(used);
  }

  async #seal(segment: Segment): Promise<void> {
    const { path, capacity, first, last, mark } = segment;
    this.#active = undefined;
    // A segment without an acknowledged record is used again last: its place on the disk may be bad.
    if (first > this.#acknowledged) this.#free.push({ path, capacity });
    else
      this.#sealed.push({
        path,
        capacity,
        first,
        last,
        mark,
        acknowledgedBefore: first - 1,
        gaps: [],
        isDamaged: false,
      });
    // All its records are durable or failed.
    await segment.close().catch(() => undefined);
  }

  async #reuse(segment: SealedSegment): Promise<void> {
    if (segment.isDamaged) await this.#folder.setAside(segment.path);
    else this.#free.push({ path: segment.path, capacity: segment.capacity });
    this.#fullAt = undefined;
  }

  #createAhead(): void {
    this.#creating = this.#create()
      .catch(() => undefined)
      .finally(() => {
        this.#creating = undefined;
      });
  }

  async #create(): Promise<void> {
    const count = this.#free.length + this.#sealed.length + (this.#active === undefined ? 0 : 1);
    // A log that was full when its process died gets one more segment: without it nothing could be released.
    if (count >= this.#maxSegments && this.#active !== undefined) return;
    try {
      this.#free.push(await this.#folder.create());
      this.#fullAt = undefined;
    } catch (error) {
      this.#fullAt = this.#free.length === 0 ? this.#clock.monotonic() : undefined;
      throw error;
    }
  }
}

function isSmall({ bytes }: PendingRecord): boolean {
  return bytes <= recordHeaderBytes + maxSmallBytes;
}

function fits(record: PendingRecord, room: number): boolean {
  return record.bytes + (isSmall(record) ? 0 : reservedForSmall) <= room;
}

/** Nothing was written: no segment can take the record now. */
export class LogFull extends Error {}

/** The record may or may not be on the disk; a replay may find it. */
export class AppendFailed extends Error {
  readonly number: number;

  constructor(number: number, cause: unknown) {
    super('a record could not be appended', { cause });
    this.number = number;
  }
}
