import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import type { ServerLog } from '../../../core/contracts/server-log.js';
import { problem } from '../../../core/problem.js';
import { LineMatcher, type LogFilter } from './log-filter.js';

/** Position of a line, which is stable since files are only appended to. */
export interface LogPlace {
  readonly file: string;
  readonly offset: number;
}

export interface FoundLine extends LogPlace {
  /** One JSON object, as it was logged. */
  readonly text: string;
  /** False for context lines. */
  readonly matched: boolean;
  /** Lines before it were left out. */
  readonly gap: boolean;
}

interface LogResult {
  /** Oldest first. */
  readonly lines: readonly FoundLine[];
  /** Where to continue with older lines; undefined at the end. */
  readonly next: LogPlace | undefined;
  /** Bytes read. */
  readonly searched: number;
}

export interface LogSearchInput extends LogFilter {
  /** Maximum matches; fewer with thousands of context lines. */
  readonly limit: number;
  /** Context lines before and after each match. */
  readonly context: number;
  /** Only lines before that position. */
  readonly before: LogPlace | undefined;
  readonly signal: AbortSignal;
}

const MAX_RUNNING = 4;
/** Maximum lines of a response, including context: more would block the event loop. */
const MAX_LINES = 2000;
/** Maximum length of a line, with a margin. */
const LINE_BYTES = 16 * 1024;

/** Searches the log files from their end. */
export class LogSearch {
  readonly #log: ServerLog;
  readonly #maxBytes: () => number;
  #running = 0;

  /** @param maxBytes maximum bytes read in one search; the response then says where to continue */
  constructor(log: ServerLog, maxBytes: () => number) {
    this.#log = log;
    this.#maxBytes = maxBytes;
  }

  /** Throws a problem when too many searches are running. */
  async find(input: LogSearchInput): Promise<LogResult> {
    if (this.#running >= MAX_RUNNING) {
      const headers = { 'Retry-After': '2' };
      throw problem('unavailable', { detail: 'Too many searches are running. Try again in a moment.', headers });
    }
    this.#running += 1;
    try {
      return await this.#find(input);
    } finally {
      this.#running -= 1;
    }
  }

  /** A line with context lines; undefined when it no longer exists. */
  async around(place: LogPlace, context: number): Promise<readonly FoundLine[] | undefined> {
    await this.#log.flush();
    const file = (await this.#files()).includes(place.file) ? await openFile(this.#log.folder, place.file) : undefined;
    if (file === undefined) return undefined;
    try {
      const bytes = Buffer.alloc((context + 1) * LINE_BYTES);
      const { bytesRead } = await file.read(bytes, 0, bytes.length, place.offset);
      const at = (text: string, offset: number): FoundLine => ({
        file: place.file,
        offset,
        text,
        matched: offset === place.offset,
        gap: false,
      });
      const after = [...linesBackwards({ start: place.offset, bytes: bytes.subarray(0, bytesRead) })]
        .toReversed()
        .slice(0, context + 1);
      if (after.length === 0) return undefined;
      const before: FoundLine[] = [];
      for await (const block of blocksBackwards(file, place.offset)) {
        for (const line of linesBackwards(block)) {
          if (before.length < context) before.unshift(at(line.bytes.toString(), line.offset));
        }
        if (before.length >= context || place.offset - block.start >= (context + 1) * LINE_BYTES) break;
      }
      return [...before, ...after.map((line) => at(line.bytes.toString(), line.offset))];
    } finally {
      await file.close();
    }
  }

  async #find(input: LogSearchInput): Promise<LogResult> {
    await this.#log.flush();
    const gathering = new Gathering(input);
    let searched = 0;
    for (const name of newestFirst(await this.#files(), input)) {
      const file = await openFile(this.#log.folder, name);
      if (file === undefined) continue;
      try {
        const { size } = await file.stat();
        let end = input.before?.file === name ? Math.min(size, input.before.offset) : size;
        for await (const block of blocksBackwards(file, end)) {
          if (searched >= this.#maxBytes()) return gathering.result(searched, { file: name, offset: end });
          searched += end - block.start;
          end = block.start;
          if (input.signal.aborted || gathering.take(name, block)) return gathering.result(searched);
        }
      } finally {
        await file.close();
      }
    }
    return gathering.result(searched);
  }

  /** Empty before the first line was written. */
  #files(): Promise<readonly string[]> {
    return this.#log.files().catch(() => []);
  }
}

/** Without files that only hold newer lines. Lines from midnight may be in the next day's file. */
function newestFirst(files: readonly string[], { before, until }: LogSearchInput): readonly string[] {
  const last = before === undefined ? files.length - 1 : files.indexOf(before.file);
  const lastDay = until === undefined ? undefined : dayOf(Date.parse(until) + 60_000);
  return files
    .slice(0, last + 1)
    .filter((name) => lastDay === undefined || name.slice('postern-'.length, 'postern-'.length + 10) <= lastDay)
    .toReversed();
}

/** Date in the format of the file names; also sorts as text with five-digit years. */
function dayOf(time: number): string {
  const text = new Date(time).toISOString();
  return text.startsWith('+') ? '9999-12-31' : text.slice(0, 10);
}

async function openFile(folder: string, name: string): Promise<FileHandle | undefined> {
  return open(join(folder, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    () => undefined,
  );
}

/** Results of a search so far, newest first. */
class Gathering {
  readonly #matcher: LineMatcher;
  readonly #limit: number;
  readonly #context: number;
  readonly #found: (Omit<FoundLine, 'gap'> & { readonly number: number })[] = [];
  /** The last non-matching lines, which become context of the next match. */
  #passed: (LogPlace & { readonly bytes: Buffer; readonly number: number })[] = [];
  /** Context lines that are still to be added before a match. */
  #owed = 0;
  #matches = 0;
  #number = 0;
  #next: LogPlace | undefined;

  constructor(input: LogSearchInput) {
    this.#matcher = new LineMatcher(input);
    this.#limit = input.limit;
    this.#context = input.context;
  }

  /** True when the search is complete. */
  take(file: string, block: LogBlock): boolean {
    const hopeful = this.#matcher.mayMatch(block.bytes);
    if (!hopeful && this.#context === 0) {
      // Checks only whether its oldest line is older than `since`.
      const end = block.bytes.indexOf(0x0a);
      return this.#matcher.judge(block.bytes.subarray(0, end === -1 ? undefined : end)) === 'older';
    }
    for (const { offset, bytes } of linesBackwards(block)) {
      this.#number += 1;
      const verdict = this.#matcher.judge(bytes);
      if (verdict === 'older') return true;
      if (verdict === 'match' && (this.#matches === this.#limit || this.#found.length >= MAX_LINES)) {
        this.#next = this.#oldestMatch();
        return true;
      }
      if (verdict === 'match') this.#match(file, offset, bytes);
      else this.#pass(file, offset, bytes);
    }
    return false;
  }

  result(searched: number, stopped?: LogPlace): LogResult {
    const ordered = this.#found.toReversed();
    const lines = ordered.map(({ number, ...line }, index) => ({
      ...line,
      gap: this.#context > 0 && index > 0 && ordered[index - 1]?.number !== number + 1,
    }));
    return { lines, next: this.#next ?? stopped, searched };
  }

  #match(file: string, offset: number, bytes: Buffer): void {
    for (const { bytes: text, ...after } of this.#passed) {
      this.#found.push({ ...after, text: text.toString(), matched: false });
    }
    this.#passed = [];
    this.#found.push({ file, offset, text: bytes.toString(), matched: true, number: this.#number });
    this.#matches += 1;
    this.#owed = this.#context;
  }

  #pass(file: string, offset: number, bytes: Buffer): void {
    if (this.#owed > 0) {
      this.#owed -= 1;
      this.#found.push({ file, offset, text: bytes.toString(), matched: false, number: this.#number });
      return;
    }
    if (this.#context === 0) return;
    this.#passed.push({ file, offset, bytes, number: this.#number });
    if (this.#passed.length > this.#context) this.#passed.shift();
  }

  #oldestMatch(): LogPlace | undefined {
    const line = this.#found.findLast(({ matched }) => matched);
    return line && { file: line.file, offset: line.offset };
  }
}

/** Many times the maximum line length: a larger block without a line end is no log. */
const BLOCK_BYTES = 256 * 1024;
const LF = 0x0a;
const none = Buffer.alloc(0);

/** Whole lines of a file, and the offset of the first; empty for a file without lines. */
interface LogBlock {
  readonly start: number;
  readonly bytes: Buffer;
}

/**
 * The lines of a file before byte `end`, last block first, each up to the start of the one before; yields to the event
 * loop between reads.
 */
async function* blocksBackwards(file: FileHandle, end: number): AsyncGenerator<LogBlock> {
  let carried = none;
  // A block without lines reuses its buffer.
  let free: Buffer<ArrayBuffer> | undefined;
  for (let position = end; position > 0;) {
    const size = Math.min(BLOCK_BYTES, position);
    position -= size;
    const { buffer, bytesRead } = await file.read(free ?? Buffer.allocUnsafe(size), 0, size, position);
    const read = buffer.subarray(0, bytesRead);
    const block = carried.length === 0 ? read : Buffer.concat([read, carried]);
    const first = position === 0 ? 0 : block.indexOf(LF) + 1;
    const holdsNoLine = position > 0 && (first === 0 || first === block.length);
    carried = holdsNoLine ? none : block.subarray(0, first);
    free = holdsNoLine ? buffer : undefined;
    yield holdsNoLine ? { start: position, bytes: carried } : { start: position + first, bytes: block.subarray(first) };
  }
}

interface RawLine {
  /** Byte in the file. */
  readonly offset: number;
  /** Without its line end. */
  readonly bytes: Buffer;
}

/** The lines of a block, last first. */
function* linesBackwards({ start, bytes }: LogBlock): Generator<RawLine> {
  let end = bytes.at(-1) === LF ? bytes.length - 1 : bytes.length;
  while (end >= 0) {
    const before = end === 0 ? -1 : bytes.lastIndexOf(LF, end - 1);
    if (before + 1 < end) yield { offset: start + before + 1, bytes: bytes.subarray(before + 1, end) };
    end = before;
  }
}
