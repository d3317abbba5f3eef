import { join } from 'node:path';
import type { Log } from '../log.js';
import { isMissing } from './fault.js';
import type { FileLayer } from './file-layer.js';
import { folderSyncOf, makeFolder } from './folder.js';
import { uniqueId } from './id.js';
import { scanRecords, type LogRecord } from './log-record.js';
import { preallocate, readSegmentHeader, segmentHeaderBytes } from './segment.js';

/** A file that a new life of a segment may begin in. */
export interface FreeSegment {
  readonly path: string;
  readonly capacity: number;
}

/** A segment that holds records and gets no more. */
export interface SealedSegment extends FreeSegment {
  /** Numbers of its first and its newest record. */
  readonly first: number;
  readonly last: number;
  /** Newest record of it that had been acknowledged and cannot be read; 0 for none. */
  readonly lost: number;
}

export interface FoundSegments {
  readonly free: readonly FreeSegment[];
  /** By the numbers of their records. */
  readonly sealed: readonly SealedSegment[];
}

const asideName = 'aside';
const segmentName = /^[0-9a-z]{20}\.segment$/;
const unfinishedName = /^[0-9a-z]{20}\.segment\.tmp$/;

function isSealed(found: FreeSegment | SealedSegment): found is SealedSegment {
  return 'last' in found;
}

/** The folder of a log: segment files, and `aside` with what could not be understood. */
export class LogFolder {
  readonly #path: string;
  readonly #files: FileLayer;
  readonly #log: Log;
  readonly #segmentBytes: number;

  constructor(path: string, files: FileLayer, log: Log, segmentBytes: number) {
    this.#path = path;
    this.#files = files;
    this.#log = log;
    this.#segmentBytes = segmentBytes;
  }

  /** Looks at every file, and shows each record that can be read. What is no segment of ours is set aside. */
  async open(visit: (record: LogRecord) => void): Promise<FoundSegments> {
    await makeFolder(this.#path, this.#files);
    const free: FreeSegment[] = [];
    const sealed: SealedSegment[] = [];
    for (const name of (await this.#files.readdir(this.#path)).sort()) {
      if (name === asideName) continue;
      const path = join(this.#path, name);
      if (unfinishedName.test(name)) await this.#removeUnfinished(path);
      else {
        const found = segmentName.test(name) ? await this.#inspect(path, visit) : undefined;
        if (found === undefined) await this.setAside(path);
        else if (isSealed(found)) sealed.push(found);
        else free.push(found);
      }
    }
    return { free, sealed: sealed.sort((one, other) => one.first - other.first) };
  }

  /** What has such a name and is no file is none of ours. */
  async #removeUnfinished(path: string): Promise<void> {
    try {
      if ((await this.#files.lstat(path)).isFile()) await this.#files.unlink(path);
      else await this.setAside(path);
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  /** Of a segment in which nothing is wanted only the header is read: there are megabytes of it. */
  async #inspect(path: string, visit: (record: LogRecord) => void): Promise<FreeSegment | SealedSegment | undefined> {
    const stats = await this.#files.lstat(path);
    if (!stats.isFile()) return undefined;
    const header = readSegmentHeader(await this.#read(path, segmentHeaderBytes));
    if (header === undefined) return undefined;
    if (header === 'empty') return { path, capacity: stats.size };
    const { first, mark } = header;
    const bytes = await this.#read(path, stats.size);
    const { records, lost } = scanRecords(bytes, segmentHeaderBytes, mark, first);
    records.forEach(visit);
    return { path, capacity: bytes.length, first, last: Math.max(records.at(-1)?.number ?? first - 1, lost), lost };
  }

  /** The records of a segment that can be read, in order. */
  async records(path: string): Promise<readonly LogRecord[]> {
    const bytes = await this.#read(path, (await this.#files.lstat(path)).size);
    const header = readSegmentHeader(bytes);
    if (header === undefined || header === 'empty') return [];
    return scanRecords(bytes, segmentHeaderBytes, header.mark, header.first).records;
  }

  /** A new segment file, durable, filled with zeros. When it rejects nothing is left. */
  async create(): Promise<FreeSegment> {
    const path = join(this.#path, `${uniqueId()}.segment`);
    const unfinished = `${path}.tmp`;
    try {
      await preallocate(unfinished, this.#files, this.#segmentBytes);
      await this.#files.rename(unfinished, path);
      await folderSyncOf(this.#files).sync(this.#path);
    } catch (error) {
      await this.#files.unlink(unfinished).catch(() => undefined);
      await this.#files.unlink(path).catch(() => undefined);
      throw error;
    }
    return { path, capacity: this.#segmentBytes };
  }

  /** Moves it out of the way, whatever it is. Never rejects. */
  async setAside(path: string): Promise<void> {
    const aside = join(this.#path, asideName);
    try {
      await makeFolder(aside, this.#files);
      await this.#files.rename(path, join(aside, `${uniqueId()}-${path.slice(this.#path.length + 1)}`));
      this.#log.warn({ path }, 'a file in the folder of the commit log cannot be understood and was set aside');
    } catch (error) {
      this.#log.warn({ err: error, path }, 'a file in the folder of the commit log cannot be set aside');
    }
  }

  /** How many files are set aside. */
  async countAside(): Promise<number> {
    try {
      return (await this.#files.readdir(join(this.#path, asideName))).length;
    } catch (error) {
      if (isMissing(error)) return 0;
      throw error;
    }
  }

  /** So many bytes from the beginning, or fewer when there are no more. */
  async #read(path: string, size: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafeSlow(size);
    const fd = await this.#files.open(path, 'r');
    try {
      let at = 0;
      while (at < size) {
        const count = await this.#files.read(fd, bytes.subarray(at), at);
        if (count === 0) break;
        at += count;
      }
      return bytes.subarray(0, at);
    } finally {
      await this.#files.close(fd);
    }
  }
}
