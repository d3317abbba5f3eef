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

/** A file in which a new segment may begin. */
export interface FreeSegment {
  readonly path: string;
  readonly capacity: number;
}

/** A segment that holds records and takes no more. */
export interface SealedSegment extends FreeSegment {
  /** Numbers of its first and its newest record. */
  readonly first: number;
  readonly last: number;
  readonly mark: Buffer;
  /** Records up to this number were acknowledged when its first readable record was written. */
  readonly acknowledgedBefore: number;
  /** Unreadable records that are followed by a valid one. */
  readonly gaps: readonly NumberRange[];
  /** Its header or some of its records cannot be read. */
  readonly isDamaged: boolean;
}

export interface FoundSegments {
  readonly free: readonly FreeSegment[];
  /** In the order of their records. */
  readonly sealed: readonly SealedSegment[];
  /** Segments in use when the previous process wrote its list. */
  readonly used: readonly UsedSegment[];
}

const asideName = 'aside';
const segmentName = /^[0-9a-z]{20}\.segment$/;
const unfinishedName = /^(?:[0-9a-z]{20}\.segment|\.segments\.json\.[0-9a-z]+)\.tmp$/;

function isSealed(found: FreeSegment | SealedSegment): found is SealedSegment {
  return 'last' in found;
}

/** The folder of a log: segment files, and `aside` with files that cannot be read. */
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

  /** Inspects every file and visits each readable record. Files that are not segments are set aside. */
  async open(visit: (record: LogRecord) => void): Promise<FoundSegments> {
    await makeFolder(this.#path, this.#files);
    const free: FreeSegment[] = [];
    const sealed: SealedSegment[] = [];
    const used = await readUsedSegments(this.#path, this.#files);
    for (const name of (await this.#files.readdir(this.#path)).sort()) {
      const path = join(this.#path, name);
      if (name === asideName || (name === usedSegmentsName && used !== undefined)) continue;
      if (unfinishedName.test(name)) await this.#removeUnfinished(path);
      else {
        const listed = used?.find((one) => one.name === name);
        const found = segmentName.test(name) ? await this.#inspect(path, listed, visit) : undefined;
        if (found === undefined) await this.setAside(path);
        else if (isSealed(found)) sealed.push(found);
        else free.push(found);
      }
    }
    return { free, sealed: sealed.sort((one, other) => one.first - other.first), used: used ?? [] };
  }

  /** The readable records of a segment, in order. */
  async records({ path, mark, first }: Pick<SealedSegment, 'path' | 'mark' | 'first'>): Promise<readonly LogRecord[]> {
    const bytes = await this.#read(path, (await this.#files.lstat(path)).size);
    return scanRecords(bytes, 0, mark, first).records;
  }

  /** A new durable segment file, filled with zeros. When it rejects, nothing is left. */
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

  /** Lists the segments in use, so that the next start detects a missing one. */
  writeUsed(used: readonly UsedSegment[]): Promise<void> {
    return writeUsedSegments(this.#path, used, this.#files);
  }

  /** Moves any entry out of the way. Never rejects. */
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

  /** Writes a note next to the files set aside, for an operator to remove. The same damage is noted once. */
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

  async countAside(): Promise<number> {
    try {
      return (await this.#files.readdir(join(this.#path, asideName))).filter((name) => !name.startsWith('.')).length;
    } catch (error) {
      if (isMissing(error)) return 0;
      throw error;
    }
  }

  /** Sets aside an entry that has such a name and is not a file. */
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
   * Of an empty segment only the header is read. A segment with a damaged header still shows its records, since each
   * carries the mark.
   */
  async #inspect(
    path: string,
    listed: UsedSegment | undefined,
    visit: (record: LogRecord) => void,
  ): Promise<FreeSegment | SealedSegment | undefined> {
    const stats = await this.#files.lstat(path);
    if (!stats.isFile()) return undefined;
    const header = readSegmentHeader(await this.#read(path, segmentHeaderBytes));
    if (header === 'empty' && listed === undefined) return { path, capacity: stats.size };
    const bytes = await this.#read(path, stats.size);
    const isWhole = header !== undefined && header !== 'empty';
    const mark = isWhole ? header.mark : markOfDamaged(bytes, listed?.first ?? 1);
    if (mark === undefined) return undefined;
    const known = isWhole ? header.first : listed?.first;
    const { records, gaps } = scanRecords(bytes, isWhole ? segmentHeaderBytes : 0, mark, known ?? 1);
    const first = known ?? records[0]?.number ?? 1;
    records.forEach(visit);
    return {
      path,
      capacity: bytes.length,
      mark,
      first,
      last: records.at(-1)?.number ?? first - 1,
      acknowledgedBefore: records[0]?.acknowledged ?? first - 1,
      // When its first number is unknown, missing records in front show as a gap after the segment before.
      gaps: gaps.filter(({ from }) => from >= first),
      isDamaged: !isWhole || gaps.length > 0,
    };
  }

  /** The first `size` bytes, or fewer when the file is shorter. */
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
  /** File name of the note about it. */
  readonly note: string;
  readonly sentence: string;
  /** Number of lost records; undefined when unknown. */
  readonly records: number | undefined;
}

/**
 * Records that were acknowledged, not released, and cannot be read. A torn end of the newest segment is normal; every
 * other gap in the numbers, every missing segment and every damaged header is damage.
 */
export function damageOf({ sealed, used }: FoundSegments, released: number, now: number): readonly LogDamage[] {
  const damage = missingRanges(sealed, released).map((range) => lossOf(range, used, now));
  const newest = sealed.at(-1)?.first ?? 0;
  const found = new Set(sealed.map(({ path }) => basename(path)));
  for (const { name, first, at } of used) {
    // An older segment shows as a gap in the numbers, unless all its records are released.
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
  for (const { first, last, gaps, acknowledgedBefore } of sealed) {
    // Records that were not acknowledged before the segment began belong to a failed write.
    add(next, Math.min(first - 1, acknowledgedBefore));
    for (const { from, to } of gaps) add(from, to);
    next = Math.max(next, last + 1);
  }
  return missing;
}

function lossOf({ from, to }: NumberRange, used: readonly UsedSegment[], now: number): LogDamage {
  const records = to - from + 1;
  const since = Math.max(-Infinity, ...used.filter(({ first }) => first <= from).map(({ at }) => at));
  const until = Math.min(now, ...used.filter(({ first }) => first > to).map(({ at }) => at));
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
