import type { TimeSlice } from '../../../core/concurrency.js';
import type { CachedFolder } from './cached-folder.js';
import { type FolderRows, rowBits } from './folder-rows.js';
import { logHeadBytes, type SummaryLog } from './summary-log.js';
import { recordLength, searchText, textOfRecord } from './summary-record.js';

/** Criteria that file names can answer. */
export interface RowFilter {
  readonly unread?: boolean | undefined;
  readonly flagged?: boolean | undefined;
  /** Received at or after / before, in milliseconds since 1970. */
  readonly since?: number | undefined;
  readonly before?: number | undefined;
}

/** Matching rows, newest first. */
export function filterRows(rows: FolderRows, filter: RowFilter): Uint32Array {
  const { unread, flagged, since = -Infinity, before = Infinity } = filter;
  const seen = wanted(unread === undefined ? undefined : !unread, rowBits.seen);
  const marked = wanted(flagged, rowBits.flagged);
  const [mask, bits] = [seen.mask | marked.mask, seen.bits | marked.bits];
  const fitting = new Uint32Array(rows.count);
  if (mask === 0 && since === -Infinity && before === Infinity) return allRows(fitting);
  let count = 0;
  for (let row = 0; row < rows.count; row++) {
    const time = rows.receivedAt[row] ?? 0;
    if (((rows.bits[row] ?? 0) & mask) === bits && time >= since && time < before) fitting[count++] = row;
  }
  return fitting.subarray(0, count);
}

function allRows(rows: Uint32Array): Uint32Array {
  for (let row = 0; row < rows.length; row++) rows[row] = row;
  return rows;
}

function wanted(value: boolean | undefined, bit: number): { readonly mask: number; readonly bits: number } {
  return { mask: value === undefined ? 0 : bit, bits: value === true ? bit : 0 };
}

/** The words of a search, all of which must match. */
export function searchWords(q: string | undefined): readonly string[] {
  const words = (q ?? '').normalize('NFC').toLowerCase().split(/\s+/);
  return [...new Set(words.filter((word) => word !== ''))];
}

export interface SearchResult {
  readonly rows: Uint32Array;
  /** False when the time limit was reached before all messages had been read: those that were not are left out. */
  readonly searchedAll: boolean;
}

interface SearchDeps {
  readonly timeSlice: TimeSlice;
  /** By `performance.now()`. */
  readonly until: number;
}

/** Those of `candidates` whose subject, sender, recipients, Message-ID or first words contain all the words. */
export async function searchRows(
  folder: CachedFolder,
  rows: FolderRows,
  candidates: Uint32Array,
  words: readonly string[],
  deps: SearchDeps,
): Promise<SearchResult> {
  for (;;) {
    const { log } = folder;
    const read = await readMissing(folder, rows, candidates, words, deps);
    const offsets = await matchingOffsets(log, words, deps);
    // Another search may have discarded the log meanwhile.
    const isSame = folder.log === log;
    if (isSame && offsets === undefined) folder.forgetSummaries();
    if (!isSame || offsets === undefined) {
      rows.summary.fill(0);
      continue;
    }
    const fits = (row: number) => offsets.has(rows.summary[row] ?? 0) || read.matched.has(row);
    return { rows: candidates.filter(fits), searchedAll: read.searchedAll };
  }
}

interface Read {
  /** All candidates have been read. */
  readonly searchedAll: boolean;
  /** The matching ones whose summaries could not be stored. */
  readonly matched: ReadonlySet<number>;
}

async function readMissing(
  folder: CachedFolder,
  rows: FolderRows,
  candidates: Uint32Array,
  words: readonly string[],
  { timeSlice, until }: SearchDeps,
): Promise<Read> {
  const matched = new Set<number>();
  const heads = folder.heads();
  try {
    for (const row of candidates) {
      if (rows.summary[row] !== 0) continue;
      if (performance.now() > until) return { searchedAll: false, matched };
      const read = folder.readMessage(rows, row, heads);
      if (read !== undefined && rows.summary[row] === 0 && hasAll(searchText(read.summary), words)) matched.add(row);
      await timeSlice.yieldIfDue();
    }
    return { searchedAll: true, matched };
  } finally {
    heads.close();
  }
}

function hasAll(text: string, words: readonly string[]): boolean {
  return words.every((word) => text.includes(word));
}

/** Undefined when the log is damaged. */
async function matchingOffsets(
  log: SummaryLog,
  words: readonly string[],
  { timeSlice }: SearchDeps,
): Promise<ReadonlySet<number> | undefined> {
  const found = new Set<number>();
  const bytes = words.map((word) => Buffer.from(word, 'utf8')).toSorted((a, b) => b.length - a.length);
  const show = (slice: Buffer, offset: number): void => matchSlice(slice, offset, bytes, found);
  return (await log.scan(logHeadBytes, show, timeSlice)) ? found : undefined;
}

/** Searches the whole slice for the longest word, and for the others only where it occurs. */
function matchSlice(slice: Buffer, offset: number, words: readonly Buffer[], found: Set<number>): void {
  const [longest = Buffer.alloc(0), ...others] = words;
  let record = 0;
  for (let hit = slice.indexOf(longest); hit >= 0;) {
    let end = record + (recordLength(slice, record) ?? slice.length);
    while (end <= hit) {
      record = end;
      end += recordLength(slice, record) ?? slice.length;
    }
    const [start, textEnd] = textOfRecord(slice, record);
    if (hit < start) {
      hit = slice.indexOf(longest, start);
      continue;
    }
    const isInText = hit + longest.length <= textEnd;
    if (isInText && others.every((word) => slice.subarray(start, textEnd).includes(word))) found.add(offset + record);
    hit = slice.indexOf(longest, end);
  }
}
