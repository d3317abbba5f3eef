import { type FileHandle, open, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.js';
import { TimeSlice } from '../../core/concurrency.js';
import type { HealthReport } from '../../core/contracts/health.js';
import type { Log } from '../../core/log/log.js';
import { keysOf, parseRecord, type TraceRecord } from './trace-record.js';

/** A segment is closed from this size on, and its index is written. */
const segmentBytes = 8 * 1024 * 1024;
const flushMs = 200;
/** Unwritten bytes; with more the disk does not keep up, and events are dropped. */
const maxPendingBytes = 4 * 1024 * 1024;
/** A line is never longer. */
const maxLineBytes = 64 * 1024;
const maxSegments = 2000;
/** What is read of a segment for its newest records. */
const tailBytes = 256 * 1024;
const dayMs = 86_400_000;

const segmentName = /^(\d{13})\.ndjson$/;

/** Whether the entry of the folder is a file of ours. */
export const isTraceFile = ({ name }: { readonly name: string }): boolean => /^\d{13}\.(?:ndjson|index)$/.test(name);

export interface TraceLimits {
  readonly days: number;
  readonly bytes: number;
}

/** A written segment: lines of JSON, and pairs of hash and offset, sorted, for each key of each line. */
interface Segment {
  /** When it began, in milliseconds; also its name. */
  readonly at: number;
  bytes: number;
}

/** Growing pairs of offset (low) and hash (high): as 64-bit numbers of a little-endian machine they sort by hash. */
class Pairs {
  #pairs = new Uint32Array(1024);
  #length = 0;

  add(hash: number, offset: number): void {
    if (this.#length === this.#pairs.length) {
      const grown = new Uint32Array(this.#length * 2);
      grown.set(this.#pairs);
      this.#pairs = grown;
    }
    this.#pairs[this.#length] = offset;
    this.#pairs[this.#length + 1] = hash;
    this.#length += 2;
  }

  offsetsOf(hash: number): readonly number[] {
    const found: number[] = [];
    for (let at = 1; at < this.#length; at += 2) if (this.#pairs[at] === hash) found.push(this.#pairs[at - 1] ?? 0);
    return found;
  }

  sorted(): Buffer {
    const pairs = new BigUint64Array(this.#pairs.buffer, 0, this.#length / 2).slice().sort();
    return Buffer.from(pairs.buffer);
  }
}

/** The segment that is written. */
class OpenSegment implements Segment {
  readonly at: number;
  readonly pairs = new Pairs();
  bytes = 0;
  chunks: string[] = [];
  handle: FileHandle | undefined;

  constructor(at: number) {
    this.at = at;
  }
}

/**
 * Events of mail, found by the ids and addresses in them. Written in batches without fsync: a kill loses the last moments.
 * What the disk refuses is dropped, never waited for.
 */
export class TraceLog {
  readonly #folder: string;
  readonly #limits: TraceLimits;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Closed ones, oldest first. */
  readonly #segments: Segment[] = [];
  #open: OpenSegment | undefined;
  #full: OpenSegment[] = [];
  #pendingBytes = 0;
  #dropped = 0;
  #failure: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  private constructor(folder: string, limits: TraceLimits, clock: Clock, log: Log) {
    this.#folder = folder;
    this.#limits = limits;
    this.#clock = clock;
    this.#log = log;
  }

  /** Finds the segments. Those that a dead process has left open are indexed after the start; a search waits for it. */
  static async open(folder: string, limits: TraceLimits, clock: Clock, log: Log): Promise<TraceLog> {
    const traces = new TraceLog(folder, limits, clock, log);
    const names = new Set(await readdir(folder));
    const unindexed: number[] = [];
    for (const name of [...names].toSorted()) {
      const at = Number(segmentName.exec(name)?.[1] ?? Number.NaN);
      if (!Number.isFinite(at)) continue;
      if (!names.has(`${at}.index`)) unindexed.push(at);
      traces.#segments.push({ at, bytes: (await stat(join(folder, name))).size });
    }
    traces.#writing = traces.#index(unindexed);
    return traces;
  }

  add(record: TraceRecord): void {
    const line = `${JSON.stringify(record)}\n`;
    const bytes = Buffer.byteLength(line);
    if (bytes > maxLineBytes || this.#pendingBytes + bytes > maxPendingBytes) {
      this.#dropped += 1;
      return;
    }
    const segment = this.#segmentFor(bytes);
    for (const key of keysOf(record)) segment.pairs.add(hashOf(key), segment.bytes);
    segment.bytes += bytes;
    segment.chunks.push(line);
    this.#pendingBytes += bytes;
    this.#timer ??= setTimeout(() => void this.flush(), flushMs).unref();
  }

  /** Records with that key before a time, newest first. */
  async find(key: string, { before = Infinity, limit }: { readonly before?: number; readonly limit: number }) {
    await this.flush();
    const found: TraceRecord[] = [];
    const hash = hashOf(key);
    const slice = new TimeSlice();
    const open = this.#open;
    const segments = [...this.#segments, ...(open === undefined ? [] : [open])];
    for (const segment of segments.toReversed()) {
      if (segment.at >= before) continue;
      const offsets =
        segment instanceof OpenSegment ? segment.pairs.offsetsOf(hash) : await this.#offsets(segment, hash);
      for (const record of (await this.#read(segment, offsets)).toReversed()) {
        if (record.at < before && keysOf(record).includes(key)) found.push(record);
        if (found.length === limit) return found;
      }
      await slice.yieldIfDue();
    }
    return found;
  }

  /** The newest records, newest first, as far as they are at the ends of the two newest segments. */
  async latest(): Promise<readonly TraceRecord[]> {
    await this.flush();
    const open = this.#open;
    const newest = [...this.#segments, ...(open === undefined ? [] : [open])].slice(-2);
    const records: TraceRecord[] = [];
    for (const segment of newest) records.push(...(await this.#tail(segment)));
    return records.toReversed();
  }

  /** Writes what waits. Never rejects. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  async close(): Promise<void> {
    if (this.#open !== undefined) this.#full.push(this.#open);
    this.#open = undefined;
    await this.flush();
  }

  health(): HealthReport {
    const figures = { droppedTotal: this.#dropped, bytes: this.#bytes(), segments: this.#segments.length };
    if (this.#failure === undefined) return { status: 'up', figures };
    return { status: 'degraded', why: `Traces of mail cannot be written: ${this.#failure}.`, figures };
  }

  #segmentFor(bytes: number): OpenSegment {
    if (this.#open !== undefined && this.#open.bytes + bytes > segmentBytes) {
      this.#full.push(this.#open);
      this.#open = undefined;
    }
    if (this.#open === undefined) {
      const last = this.#full.at(-1)?.at ?? this.#segments.at(-1)?.at ?? 0;
      // Names ascend, whatever the clock does.
      this.#open = new OpenSegment(Math.max(this.#clock.now(), last + 1));
    }
    return this.#open;
  }

  async #write(): Promise<void> {
    const full = this.#full;
    this.#full = [];
    for (const segment of full) {
      const isWritten = (await this.#append(segment)) && (await this.#finish(segment));
      if (isWritten) this.#segments.push({ at: segment.at, bytes: segment.bytes });
    }
    if (full.length > 0) await this.#trim().catch((error: unknown) => this.#fail(error));
    const open = this.#open;
    if (open !== undefined && !(await this.#append(open)) && this.#open === open) this.#open = undefined;
  }

  /** False when the disk refuses: then the segment takes no more. */
  async #append(segment: OpenSegment): Promise<boolean> {
    const text = segment.chunks.join('');
    segment.chunks = [];
    if (text === '') return true;
    this.#pendingBytes -= Buffer.byteLength(text);
    try {
      segment.handle ??= await open(this.#path(segment, 'ndjson'), 'ax', 0o600);
      await segment.handle.appendFile(text);
      this.#failure = undefined;
      return true;
    } catch (error) {
      this.#fail(error);
      await segment.handle?.close().catch(() => undefined);
      return false;
    }
  }

  async #finish(segment: OpenSegment): Promise<boolean> {
    try {
      await segment.handle?.close();
      await writeFile(this.#path(segment, 'index'), segment.pairs.sorted(), { mode: 0o600 });
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  #fail(error: unknown): void {
    this.#dropped += 1;
    const { code = 'unknown' } = error as NodeJS.ErrnoException;
    if (this.#failure === undefined) this.#log.warn({ err: error }, 'traces of mail cannot be written');
    this.#failure = code;
  }

  async #index(segments: readonly number[]): Promise<void> {
    try {
      for (const at of segments) await this.#indexOne(at);
      await this.#trim();
    } catch (error) {
      this.#fail(error);
    }
  }

  async #indexOne(at: number): Promise<void> {
    const pairs = new Pairs();
    const slice = new TimeSlice();
    const content = await readFile(join(this.#folder, `${at}.ndjson`));
    for (let offset = 0, end = content.indexOf(10); end >= 0; offset = end + 1, end = content.indexOf(10, offset)) {
      const record = parseRecord(content.toString('utf8', offset, end));
      if (record !== undefined) for (const key of keysOf(record)) pairs.add(hashOf(key), offset);
      await slice.yieldIfDue();
    }
    await writeFile(join(this.#folder, `${at}.index`), pairs.sorted(), { mode: 0o600 });
  }

  /** Offsets in ascending order: a binary search of the index for the first pair, then the next ones. */
  async #offsets(segment: Segment, hash: number): Promise<readonly number[]> {
    const handle = await open(this.#path(segment, 'index')).catch(() => undefined);
    if (handle === undefined) return [];
    try {
      const pair = Buffer.alloc(8);
      const hashAt = async (index: number): Promise<number> => {
        await handle.read(pair, 0, 8, index * 8);
        return pair.readUInt32LE(4);
      };
      const count = Math.floor((await handle.stat()).size / 8);
      let [low, high] = [0, count];
      while (low < high) {
        const middle = Math.floor((low + high) / 2);
        if ((await hashAt(middle)) < hash) low = middle + 1;
        else high = middle;
      }
      const offsets: number[] = [];
      for (let index = low; index < count && (await hashAt(index)) === hash; index += 1) {
        offsets.push(pair.readUInt32LE(0));
      }
      return offsets;
    } finally {
      await handle.close();
    }
  }

  async #read(segment: Segment, offsets: readonly number[]): Promise<readonly TraceRecord[]> {
    if (offsets.length === 0) return [];
    const handle = await open(this.#path(segment, 'ndjson')).catch(() => undefined);
    if (handle === undefined) return [];
    try {
      const records: TraceRecord[] = [];
      const buffer = Buffer.alloc(maxLineBytes);
      for (const offset of offsets) {
        const { bytesRead } = await handle.read(buffer, 0, maxLineBytes, offset);
        const end = buffer.subarray(0, bytesRead).indexOf(10);
        const record = end < 0 ? undefined : parseRecord(buffer.toString('utf8', 0, end));
        if (record !== undefined) records.push(record);
      }
      return records;
    } finally {
      await handle.close();
    }
  }

  /** The last records, oldest first; the first line may be cut and is no record then. */
  async #tail(segment: Segment): Promise<readonly TraceRecord[]> {
    const handle = await open(this.#path(segment, 'ndjson')).catch(() => undefined);
    if (handle === undefined) return [];
    try {
      const { size } = await handle.stat();
      const from = Math.max(0, size - tailBytes);
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - from), 0, size - from, from);
      const lines = buffer.toString('utf8', 0, bytesRead).split('\n');
      return lines.map(parseRecord).filter((record) => record !== undefined);
    } finally {
      await handle.close();
    }
  }

  /** Removes what is too old or too much, the oldest first. */
  async #trim(): Promise<void> {
    const oldest = this.#clock.now() - this.#limits.days * dayMs;
    const isTooMuch = (): boolean => this.#bytes() > this.#limits.bytes || this.#segments.length > maxSegments;
    for (let [first, next] = this.#segments; first !== undefined; [first, next] = this.#segments) {
      // The last record of a segment is older than the first one of the next.
      if (!isTooMuch() && (next?.at ?? Infinity) >= oldest) return;
      this.#segments.shift();
      await rm(this.#path(first, 'ndjson'), { force: true });
      await rm(this.#path(first, 'index'), { force: true });
    }
  }

  /** Lines alone; the indexes are a sixth of that. */
  #bytes(): number {
    return this.#segments.reduce((sum, { bytes }) => sum + bytes, this.#open?.bytes ?? 0);
  }

  #path({ at }: Segment, kind: 'ndjson' | 'index'): string {
    return join(this.#folder, `${at}.${kind}`);
  }
}

/** FNV-1a of the UTF-16 units. */
function hashOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < key.length; at += 1) hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}
