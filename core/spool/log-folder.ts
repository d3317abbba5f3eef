import { basename, join } from 'node:path';
import { writeFileAtomic } from '../disk/atomic.js';
import { isMissing, isUnwritable } from '../disk/fault.js';
import type { FileLayer } from '../disk/file-layer.js';
import { folderSyncOf, makeFolder } from '../disk/folder.js';
import { uniqueId } from '../disk/id.js';
import type { Log } from '../log/log.js';
import {
  type LogRecord,
  markOfDamaged,
  type NumberRange,
  preallocate,
  readSegmentHeader,
  readUsedSegments,
  scanRecords,
  segmentHeaderBytes,
  type UsedSegment,
  usedSegmentsName,
  writeUsedSegments,
} from './segments.js';

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
  readonly mark: Buffer;
  /** Its first readable record says that the records up to that number had been acknowledged. */
  readonly ackedBefore: number;
  /** Records that cannot be read although a valid one follows. */
  readonly gaps: readonly NumberRange[];
  /** Its header or some of its records cannot be read. */
  readonly isDamaged: boolean;
}

export interface FoundSegments {
  readonly free: readonly FreeSegment[];
  /** By the numbers of their records. */
  readonly sealed: readonly SealedSegment[];
  /** Segments that were in use when the process before this one wrote its list. */
  readonly used: readonly UsedSegment[];
}

const asideName = 'aside';
const segmentName = /^[0-9a-z]{20}\.segment$/;
const unfinishedName = /^(?:[0-9a-z]{20}\.segment|\.segments\.json\.[0-9a-z]+)\.tmp$/;

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
    const lives = await readUsedSegments(this.#path, this.#files);
    for (const name of (await this.#files.readdir(this.#path)).sort()) {
      const path = join(this.#path, name);
      if (name === asideName || (name === usedSegmentsName && lives !== undefined)) continue;
      if (unfinishedName.test(name)) await this.#removeUnfinished(path);
      else {
        const life = lives?.find((one) => one.name === name);
        const found = segmentName.test(name) ? await this.#inspect(path, life, visit) : undefined;
        if (found === undefined) await this.setAside(path);
        else if (isSealed(found)) sealed.push(found);
        else free.push(found);
      }
    }
    return { free, sealed: sealed.sort((one, other) => one.first - other.first), used: lives ?? [] };
  }

  /** What has such a name and is no file is none of ours. */
  async #removeUnfinished(path: string): Promise<void> {
    try {
      if ((await this.#files.lstat(path)).isFile()) await this.#files.unlink(path);
      else await this.setAside(path);
    } catch (error) {
      // On a read-only disk it stays for a later start.
      if (!isMissing(error) && !isUnwritable(error)) throw error;
    }
  }

  /**
   * Of a segment in which nothing is wanted only the header is read: there are megabytes of it. One whose header is damaged shows its
   * records all the same: each of them carries the mark.
   */
  async #inspect(
    path: string,
    life: UsedSegment | undefined,
    visit: (record: LogRecord) => void,
  ): Promise<FreeSegment | SealedSegment | undefined> {
    const stats = await this.#files.lstat(path);
    if (!stats.isFile()) return undefined;
    const header = readSegmentHeader(await this.#read(path, segmentHeaderBytes));
    if (header === 'empty' && life === undefined) return { path, capacity: stats.size };
    const bytes = await this.#read(path, stats.size);
    const isWhole = header !== undefined && header !== 'empty';
    const mark = isWhole ? header.mark : markOfDamaged(bytes, life?.first ?? 1);
    if (mark === undefined) return undefined;
    const known = isWhole ? header.first : life?.first;
    const { records, gaps } = scanRecords(bytes, isWhole ? segmentHeaderBytes : 0, mark, known ?? 1);
    const first = known ?? records[0]?.number ?? 1;
    records.forEach(visit);
    return {
      path,
      capacity: bytes.length,
      mark,
      first,
      last: records.at(-1)?.number ?? first - 1,
      ackedBefore: records[0]?.acknowledged ?? first - 1,
      // Where nobody knows its first number, what is missing in front shows from the segment before.
      gaps: gaps.filter(({ from }) => from >= first),
      isDamaged: !isWhole || gaps.length > 0,
    };
  }

  /** The records of a segment that can be read, in order. */
  async records({ path, mark, first }: Pick<SealedSegment, 'path' | 'mark' | 'first'>): Promise<readonly LogRecord[]> {
    const bytes = await this.#read(path, (await this.#files.lstat(path)).size);
    return scanRecords(bytes, 0, mark, first).records;
  }

  /** Lists the segments that are in use, so that the next start notices when one of them is gone. */
  writeUsed(lives: readonly UsedSegment[]): Promise<void> {
    return writeUsedSegments(this.#path, lives, this.#files);
  }

  /** Leaves a note beside what is set aside: the damage is known until an operator removes it. The same damage is noted once. */
  async note(name: string, sentence: string): Promise<void> {
    const aside = join(this.#path, asideName);
    try {
      await makeFolder(aside, this.#files);
      if (await this.#files.exists(join(aside, name))) return;
      await writeFileAtomic(join(aside, name), `${sentence}\n`, { files: this.#files });
    } catch (error) {
      this.#log.warn({ err: error, name }, 'damage of the commit log cannot be noted on the disk');
    }
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
      return (await this.#files.readdir(join(this.#path, asideName))).filter((name) => !name.startsWith('.')).length;
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

export interface LogDamage {
  /** Name of the note about it. */
  readonly note: string;
  readonly sentence: string;
  /** How many records are lost; undefined when nobody can know. */
  readonly records: number | undefined;
}

/**
 * What had been acknowledged, was not released, and cannot be read. The end of the newest segment may be torn; every other gap in the
 * numbers, every segment that is gone and every damaged header is damage.
 */
export function damageOf({ sealed, used }: FoundSegments, released: number, now: number): readonly LogDamage[] {
  const damage = missingRanges(sealed, released).map((range) => lossOf(range, used, now));
  const newest = sealed.at(-1)?.first ?? 0;
  const found = new Set(sealed.map(({ path }) => basename(path)));
  for (const { name, first, at } of used) {
    // One that is older shows as a gap in the numbers, unless nothing in it is wanted.
    if (found.has(name) || first <= newest) continue;
    damage.push({
      note: `damage-from-${first}.txt`,
      sentence: `A segment of the log is gone or cannot be read: ${name}. It holds the records from number ${first} on, written between ${timeOf(at)} and ${timeOf(now)}; how many is not known.`,
      records: undefined,
    });
  }
  for (const { path, first, last, isDamaged, gaps } of sealed) {
    if (!isDamaged || gaps.length > 0 || last <= released) continue;
    const name = basename(path);
    damage.push({
      note: `damage-header-${first}.txt`,
      sentence: `The header of a segment of the log is damaged: ${name}. Its records from number ${first} to ${last} can be read.`,
      records: 0,
    });
  }
  return damage;
}

function missingRanges(sealed: FoundSegments['sealed'], released: number): readonly NumberRange[] {
  const missing: NumberRange[] = [];
  let next = released + 1;
  const add = (from: number, to: number): void => {
    if (to >= Math.max(from, next)) missing.push({ from: Math.max(from, next), to });
  };
  for (const { first, last, gaps, ackedBefore } of sealed) {
    // What was not acknowledged before the segment began is a write that failed.
    add(next, Math.min(first - 1, ackedBefore));
    for (const { from, to } of gaps) add(from, to);
    next = Math.max(next, last + 1);
  }
  return missing;
}

function lossOf({ from, to }: NumberRange, lives: readonly UsedSegment[], now: number): LogDamage {
  const records = to - from + 1;
  const since = Math.max(-Infinity, ...lives.filter(({ first }) => first <= from).map(({ at }) => at));
  const until = Math.min(now, ...lives.filter(({ first }) => first > to).map(({ at }) => at));
  const time = Number.isFinite(since) ? `between ${timeOf(since)} and ${timeOf(until)}` : `before ${timeOf(until)}`;
  return {
    note: `damage-${from}-${to}.txt`,
    sentence: `${records} ${records === 1 ? 'record' : 'records'} of the log cannot be read: number ${from} to ${to}, written ${time}.`,
    records,
  };
}

function timeOf(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}
