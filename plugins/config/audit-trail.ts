import type { FileHandle } from 'node:fs/promises';
import { type AuditEntry, type AuditPage, type AuditQuery, requestedPath } from '../../core/contracts/http-records.js';
import { openAuditFile } from '../../core/log/file.js';
import { problem } from '../../core/problem.js';
import { parseTime } from '../../core/text/format.js';
import { redact } from '../../core/log/redact.js';

/** Bytes that one request reads; a page with fewer entries returns a cursor to continue. */
const maxScanned = 64 * 1024 * 1024;
/** Bytes read for a count: some 50,000 changes. */
const maxCounted = 16 * 1024 * 1024;
/** Lines are in the order of their times, but for a clock that was set back: by less than this. */
const clockSlackMs = 86_400_000;
const maxFiles = 1000;
const pieceBytes = 256 * 1024;

/** A line with its position: the offset in the file with that inode, which stays valid when the file is rotated. */
interface Line {
  readonly text: string;
  readonly inode: number;
  readonly offset: number;
}

/** The newest matching entries after the cursor in the files of this server. @throws Problem `bad-request` for an invalid cursor */
export async function readAudit(folder: string, query: AuditQuery): Promise<AuditPage> {
  const found: { readonly entry: AuditEntry; readonly line: Line }[] = [];
  let scanned = 0;
  let last: Line | undefined;
  const fits = filterOf(query);
  const oldest = query.since === undefined ? -Infinity : parseTime(query.since) - clockSlackMs;
  for await (const line of linesBackwards(folder, query.cursor)) {
    if (found.length > query.limit || scanned > maxScanned) break;
    scanned += line.text.length;
    last = line;
    const entry = parse(line.text);
    if (entry !== undefined && Date.parse(entry.at) < oldest) break;
    if (entry !== undefined && fits(entry)) found.push({ entry, line });
  }
  const whole = found.length <= query.limit && scanned <= maxScanned;
  const shown = found.slice(0, query.limit);
  const resume = whole ? undefined : found.length > query.limit ? shown.at(-1)?.line : last;
  return {
    items: shown.map(({ entry }) => redact(entry) as AuditEntry),
    total: whole && query.cursor === undefined ? found.length : await count(folder, query, fits),
    limit: query.limit,
    nextCursor: resume === undefined ? null : `${resume.inode.toString(36)}.${resume.offset.toString(36)}`,
  };
}

/** Number of matching entries in the whole log; null when it is too long to read. */
async function count(folder: string, query: AuditQuery, fits: (entry: AuditEntry) => boolean): Promise<number | null> {
  const { limit: _limit, cursor: _cursor, ...filters } = query;
  const all = Object.values(filters).every((filter) => filter === undefined);
  let counted = 0;
  let scanned = 0;
  for await (const { text } of linesBackwards(folder, undefined)) {
    scanned += text.length;
    if (scanned > maxCounted) return null;
    // A line without an end was cut off by a crash; the others count without being parsed.
    const entry = all ? undefined : parse(text);
    if (all ? text.startsWith('{') && text.endsWith('}') : entry !== undefined && fits(entry)) counted += 1;
  }
  return counted;
}

async function* linesBackwards(folder: string, cursor: string | undefined): AsyncGenerator<Line> {
  let start = cursor === undefined ? undefined : parseCursor(cursor);
  for (let number = 0; number < maxFiles; number += 1) {
    const file = await openAuditFile(folder, number);
    if (file === undefined) {
      if (number > 0) return;
      continue;
    }
    try {
      const { ino, size } = await file.stat();
      if (start !== undefined && start.inode !== ino) continue;
      yield* fileBackwards(file, ino, Math.min(start?.offset ?? size, size));
      start = undefined;
    } finally {
      await file.close();
    }
  }
}

/** Lines that end before `end`, last first; read in blocks, so that memory is bounded. */
async function* fileBackwards(file: FileHandle, inode: number, end: number): AsyncGenerator<Line> {
  let rest: Buffer = Buffer.alloc(0);
  let at = end;
  while (at > 0) {
    const length = Math.min(pieceBytes, at);
    const piece = Buffer.alloc(length);
    at -= length;
    await file.read(piece, 0, length, at);
    rest = Buffer.concat([piece, rest]);
    for (let line = lastLine(rest, at === 0); line !== undefined; line = lastLine(rest, at === 0)) {
      rest = rest.subarray(0, line.start);
      if (line.text !== '') yield { text: line.text, inode, offset: at + line.start };
    }
  }
}

/** The last line that begins in the block. */
function lastLine(buffer: Buffer, whole: boolean): { readonly text: string; readonly start: number } | undefined {
  if (buffer.length === 0) return undefined;
  const end = buffer.at(-1) === 0x0a ? buffer.length - 1 : buffer.length;
  const before = end === 0 ? -1 : buffer.lastIndexOf(0x0a, end - 1);
  if (before === -1 && !whole) return undefined;
  return { text: buffer.toString('utf8', before + 1, end), start: before + 1 };
}

const cursorPattern = /^([0-9a-z]{1,11})\.([0-9a-z]{1,11})$/;

/** Whether it continues in the files of this server. */
export const isFileCursor = (cursor: string): boolean => cursorPattern.test(cursor);

function parseCursor(cursor: string): { readonly inode: number; readonly offset: number } {
  const match = cursorPattern.exec(cursor);
  if (match === null) throw problem('bad-request', { errors: [{ pointer: 'cursor', message: 'is not one of ours' }] });
  return { inode: parseInt(match[1] ?? '', 36), offset: parseInt(match[2] ?? '', 36) };
}

/** Skips a line that was cut off by a crash. */
function parse(text: string): AuditEntry | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && 'at' in value ? (value as AuditEntry) : undefined;
  } catch {
    return undefined;
  }
}

function filterOf(query: AuditQuery): (entry: AuditEntry) => boolean {
  const { node, who, from, method, path, action, result, since, until } = query;
  const [earliest, latest] = [since, until].map((time) => (time === undefined ? undefined : parseTime(time)));
  const has = (text: string | null | undefined, part: string | undefined) =>
    part === undefined || (text ?? '').toLowerCase().includes(part.toLowerCase());
  return (entry) => {
    const at = Date.parse(entry.at);
    return (
      (node === undefined || entry.node === node) &&
      has(entry.by, who) &&
      has(entry.from, from) &&
      (method === undefined || entry.method === method) &&
      has(requestedPath(entry), path) &&
      has(entry.action, action) &&
      (result === undefined || (result === 'done') === entry.status < 400) &&
      (earliest === undefined || at >= earliest) &&
      (latest === undefined || at < latest)
    );
  };
}
