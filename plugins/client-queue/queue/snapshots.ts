import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { z } from 'zod';
import { TimeSlice } from '../../../core/concurrency.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import { folderSyncOf } from '../../../core/disk/folder.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import { readAt } from './bodies.js';
import { keptAttempts } from './change.js';
import type { Journal } from './journal.js';
import type { QueuedEntry } from './queued-entry.js';
import { StoredEntry, storeEntry } from './stored-entry.js';

export interface SnapshotsInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly journal: Journal;
  readonly log: Log;
  /** The snapshot found at the start. */
  readonly current: SnapshotFile | undefined;
  /** A snapshot is due when the journal has this many bytes since the last one, and a quarter of its size. */
  readonly journalBytes: number;
  /** Maximum bytes of the journal, whatever the size of the snapshot. */
  readonly maxJournalBytes: number;
}

/** Keeps the journal short by writing snapshots. */
export class Snapshots {
  readonly #input: SnapshotsInput;
  #current: SnapshotFile | undefined;
  #writing: Promise<boolean> | undefined;
  #notBefore = 0;
  #held = false;
  #closed = false;

  constructor(input: SnapshotsInput) {
    this.#input = input;
    this.#current = input.current;
  }

  /** While true, no snapshot is written: damage is to be inspected first. */
  set held(held: boolean) {
    this.#held = held;
  }

  /** The attempts of an entry, oldest first, as a JSON array. */
  async history(entry: QueuedEntry): Promise<string> {
    const { recent } = entry.details;
    const old = entry.historyBytes > 0 ? await this.#current?.history(entry) : undefined;
    return joinHistory(old ?? '[]', recent);
  }

  /** Writes a snapshot if one is due. Never rejects; one at a time. */
  async write(entries: () => Iterable<QueuedEntry>): Promise<void> {
    if (this.#closed || this.#held) return;
    if (this.#writing !== undefined || this.#input.journal.bytes >= this.#threshold) await this.#begin(entries);
  }

  /**
   * Writes a snapshot with the current state. False when none was written: it is held, or the disk refused. Never
   * rejects.
   */
  async writeNow(entries: () => Iterable<QueuedEntry>): Promise<boolean> {
    // One that is already running may have passed entries that changed since.
    await this.#writing;
    return this.#closed || this.#held ? false : this.#begin(entries);
  }

  #begin(entries: () => Iterable<QueuedEntry>): Promise<boolean> {
    this.#writing ??= this.#write(entries).finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  get #threshold(): number {
    const { journalBytes, maxJournalBytes } = this.#input;
    const usual = Math.min(Math.max(journalBytes, (this.#current?.bytes ?? 0) / 4), maxJournalBytes);
    return Math.max(usual, this.#notBefore);
  }

  async #write(entries: () => Iterable<QueuedEntry>): Promise<boolean> {
    const { folder, files, journal, log } = this.#input;
    // Lets waiters of acknowledged records run first, so that their changes are in memory.
    await setImmediate();
    const upTo = journal.last;
    try {
      const before = this.#current;
      const written = await writeSnapshot({ folder, files, entries: entries(), before, upTo });
      await journal.mark({ snapshot: written.file.name, upTo }).catch(async (error: unknown) => {
        // The journal may name it already: the file stays until the next one.
        await written.file.close();
        throw error;
      });
      written.adopt();
      this.#current = written.file;
      this.#notBefore = 0;
      await before?.close();
      await this.#removeOthers(written.file.name).catch((error: unknown) => {
        log.warn({ err: error }, 'an older snapshot of the queue could not be removed; the next start will');
      });
      return true;
    } catch (error) {
      this.#notBefore = journal.bytes + this.#input.journalBytes / 4;
      log.warn({ err: error }, 'the journal of the queue could not be made shorter; it is tried again');
      return false;
    }
  }

  async #removeOthers(name: string): Promise<void> {
    const { folder, files } = this.#input;
    for (const other of await files.readdir(folder)) {
      if (snapshotName.test(other) && other !== name) await files.unlink(join(folder, other));
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#writing;
    await this.#current?.close();
  }
}

const windowBytes = 256 * 1024;

/** The current snapshot, open for reading histories. */
export class SnapshotFile {
  readonly name: string;
  readonly bytes: number;
  readonly #files: FileLayer;
  readonly #fd: number;
  #readers = 0;
  #closing = false;
  #window: Buffer = Buffer.alloc(0);
  #windowAt = 0;

  constructor(name: string, files: FileLayer, fd: number, bytes: number) {
    this.name = name;
    this.#files = files;
    this.#fd = fd;
    this.bytes = bytes;
  }

  /** The attempts of an entry in the snapshot, as a JSON array. */
  history({ historyAt, historyBytes }: QueuedEntry): Promise<string> {
    return this.#read(async () => (await readAt(this.#files, this.#fd, historyAt, historyBytes)).toString('utf8'));
  }

  /** The same for sequential reads. */
  async historyInOrder({ historyAt, historyBytes }: QueuedEntry): Promise<string> {
    const within = historyAt - this.#windowAt;
    if (within < 0 || within + historyBytes > this.#window.length) {
      await this.#read(async () => {
        this.#window = await readAt(this.#files, this.#fd, historyAt, Math.max(windowBytes, historyBytes));
        this.#windowAt = historyAt;
      });
    }
    const at = historyAt - this.#windowAt;
    return this.#window.toString('utf8', at, at + historyBytes);
  }

  /** Lets running reads finish. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#window = Buffer.alloc(0);
    if (this.#readers === 0) await this.#files.close(this.#fd);
  }

  async #read<T>(read: () => Promise<T>): Promise<T> {
    this.#readers += 1;
    try {
      return await read();
    } finally {
      this.#readers -= 1;
      if (this.#closing && this.#readers === 0) await this.#files.close(this.#fd);
    }
  }
}

/** A line is the CRC-32 of the rest as 8 hex digits, a space, and three JSON values separated by tabs. */
const sumBytes = 8;
const contentAt = sumBytes + 1;
const tab = 9;

export interface SnapshotLine {
  readonly entry: string;
  readonly envelope: string;
  /** Offset and length of the history in the line. */
  readonly historyAt: number;
  readonly historyBytes: number;
}

export interface EncodedLine {
  /** Including the line end. */
  readonly bytes: Buffer;
  readonly historyAt: number;
}

export function encodeLine(entry: string, envelope: string, history: string): EncodedLine {
  const head = `${entry}\t${envelope}\t`;
  const headBytes = Buffer.byteLength(head);
  const historyAt = contentAt + headBytes;
  const bytes = Buffer.allocUnsafe(historyAt + Buffer.byteLength(history) + 1);
  bytes.write(head, contentAt);
  bytes.write(history, historyAt);
  bytes[bytes.length - 1] = 10;
  bytes.write(hex(crc32(bytes.subarray(contentAt, -1))), 0);
  bytes[sumBytes] = 32;
  return { bytes, historyAt };
}

/** Undefined when it is damaged. */
function decodeLine(line: Buffer): SnapshotLine | undefined {
  const content = line.subarray(contentAt);
  if (line.length < contentAt || line.toString('latin1', 0, sumBytes) !== hex(crc32(content))) return undefined;
  const entryEnd = content.indexOf(tab);
  const envelopeEnd = entryEnd < 0 ? -1 : content.indexOf(tab, entryEnd + 1);
  if (envelopeEnd < 0) return undefined;
  return {
    entry: content.toString('utf8', 0, entryEnd),
    envelope: content.toString('utf8', entryEnd + 1, envelopeEnd),
    historyAt: contentAt + envelopeEnd + 1,
    historyBytes: content.length - envelopeEnd - 1,
  };
}

function hex(sum: number): string {
  return sum.toString(16).padStart(sumBytes, '0');
}

const readBytes = 1024 * 1024;
/** Maximum bytes of a line; a longer one is damaged. */
const maxLine = 64 * 1024 * 1024;

export const snapshotForm = 1;
const Frame = z.object({ form: z.number(), upTo: z.number(), end: z.exactOptional(z.number()) });

export interface FoundEntry {
  readonly stored: StoredEntry;
  readonly envelope: string;
  /** Offset of the history in the file. */
  readonly historyAt: number;
  readonly historyBytes: number;
}

export interface SnapshotVisitor {
  entry(found: FoundEntry): void;
  /** Receives a line that cannot be decoded. */
  damaged(bytes: Buffer): Promise<void>;
}

export interface ReadSnapshot {
  /** Format version; undefined when the first line is damaged. */
  readonly form: number | undefined;
  /** Number of the last journal record in it. */
  readonly upTo: number;
  /** Nothing is damaged or missing. */
  readonly whole: boolean;
  readonly bytes: number;
}

/**
 * Visits every entry of a snapshot. A damaged line does not affect others. A file of a later format is not read at all.
 */
export async function readSnapshot(files: FileLayer, fd: number, visitor: SnapshotVisitor): Promise<ReadSnapshot> {
  const slice = new TimeSlice();
  let frame: z.output<typeof Frame> | undefined;
  let entries = 0;
  let damaged = 0;
  let ended: number | undefined;
  let bytes = 0;
  for await (const { line, at } of linesOf(files, fd)) {
    bytes = at + line.length + 1;
    const decoded = decodeLine(line);
    const json = decoded === undefined ? undefined : parsed(decoded.entry);
    const stored = StoredEntry.safeParse(json).data;
    const found = stored === undefined ? Frame.safeParse(json).data : undefined;
    if (found?.end !== undefined) ended = found.end;
    else if (found !== undefined) frame ??= found;
    else if (stored !== undefined && decoded !== undefined) {
      entries += 1;
      const { envelope, historyAt, historyBytes } = decoded;
      visitor.entry({ stored, envelope, historyAt: at + historyAt, historyBytes });
    } else {
      damaged += 1;
      await visitor.damaged(line);
    }
    if (frame !== undefined && frame.form > snapshotForm) break;
    await slice.yieldIfDue();
  }
  const whole = frame !== undefined && damaged === 0 && ended === entries;
  return { form: frame?.form, upTo: frame?.upTo ?? 0, whole, bytes };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

interface FoundLine {
  readonly line: Buffer;
  /** Offset in the file. */
  readonly at: number;
}

async function* linesOf(files: FileLayer, fd: number): AsyncGenerator<FoundLine> {
  let rest: Buffer = Buffer.alloc(0);
  let at = 0;
  let position = 0;
  for (;;) {
    const piece = Buffer.allocUnsafe(readBytes);
    const count = await files.read(fd, piece, position);
    if (count === 0) break;
    position += count;
    rest = rest.length === 0 ? piece.subarray(0, count) : Buffer.concat([rest, piece.subarray(0, count)]);
    let start = 0;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10, start)) {
      yield { line: rest.subarray(start, end), at: at + start };
      start = end + 1;
    }
    if (start === 0 && rest.length > maxLine) start = rest.length;
    at += start;
    rest = rest.subarray(start);
  }
  if (rest.length > 0) yield { line: rest, at };
}

const pieceBytes = 1024 * 1024;
const unfinishedSuffix = '.tmp';
export const snapshotName = /^snapshot-[0-9a-z]{20}$/;
/** Left by a process that died while it wrote. */
export const unfinishedSnapshotName = /^snapshot-[0-9a-z]{20}\.tmp$/;

export interface SnapshotInput {
  readonly folder: string;
  readonly files: FileLayer;
  /** They may change meanwhile: each is written as it was at some time after the start. */
  readonly entries: Iterable<QueuedEntry>;
  /** The snapshot with the histories so far. */
  readonly before: SnapshotFile | undefined;
  /** Number of the newest journal record in it. */
  readonly upTo: number;
}

export interface WrittenSnapshot {
  readonly file: SnapshotFile;
  /** Sets the new positions of the histories in the entries. */
  adopt(): void;
}

interface HistoryPlace {
  readonly entry: QueuedEntry;
  readonly at: number;
  readonly bytes: number;
  /** The newest attempts that are included. */
  readonly recent: readonly string[];
}

/** Writes all entries to a new file, durably. Leaves nothing when it rejects. */
async function writeSnapshot(input: SnapshotInput): Promise<WrittenSnapshot> {
  const { folder, files } = input;
  const name = `snapshot-${uniqueId()}`;
  const path = join(folder, name);
  const unfinished = path + unfinishedSuffix;
  const fd = await files.open(unfinished, 'wx+', 0o600);
  try {
    const { bytes, places } = await writeEntries(input, fd);
    await files.fsync(fd);
    await files.rename(unfinished, path);
    await folderSyncOf(files).sync(folder);
    return { file: new SnapshotFile(name, files, fd, bytes), adopt: () => places.forEach(adopt) };
  } catch (error) {
    await files.close(fd).catch(() => undefined);
    for (const left of [unfinished, path]) await files.unlink(left).catch(() => undefined);
    throw error;
  }
}

async function writeEntries({ files, entries, before, upTo }: SnapshotInput, fd: number) {
  const places: HistoryPlace[] = [];
  const slice = new TimeSlice();
  let lines: Buffer[] = [];
  let gathered = 0;
  let bytes = 0;
  const add = async (entry: object, envelope: string, history: string): Promise<number> => {
    const line = encodeLine(JSON.stringify(entry), envelope, history);
    const at = bytes + line.historyAt;
    lines.push(line.bytes);
    bytes += line.bytes.length;
    gathered += line.bytes.length;
    if (gathered >= pieceBytes) {
      await writeAll(files, fd, lines);
      lines = [];
      gathered = 0;
    }
    return at;
  };
  await add({ form: snapshotForm, upTo }, '[]', '[]');
  for (const entry of entries) {
    const old = entry.historyBytes > 0 && before !== undefined ? await before.historyInOrder(entry) : '[]';
    const { recent } = entry.details;
    const history = joinHistory(old, recent);
    const at = await add(storeEntry(entry), entry.envelope, history);
    places.push({ entry, at, bytes: Buffer.byteLength(history), recent });
    await slice.yieldIfDue();
  }
  await add({ form: snapshotForm, upTo, end: places.length }, '[]', '[]');
  await writeAll(files, fd, lines);
  return { bytes, places };
}

/** The attempts of a history; empty when the disk damaged it, since delivery does not depend on it. */
export function attemptsOf(history: string): readonly unknown[] {
  try {
    const known: unknown = JSON.parse(history);
    return Array.isArray(known) ? known : [];
  } catch {
    return [];
  }
}

/** Joins an older history, a JSON array, with newer attempts and keeps the newest. */
function joinHistory(old: string, recent: readonly string[]): string {
  if (recent.length === 0) return old;
  const texts = attemptsOf(old).map((attempt) => JSON.stringify(attempt));
  return `[${[...texts, ...recent].slice(-keptAttempts).join(',')}]`;
}

function adopt({ entry, at, bytes, recent }: HistoryPlace): void {
  entry.historyAt = at;
  entry.historyBytes = bytes;
  if (recent.length === 0) return;
  const newest = entry.details.recent.indexOf(recent.at(-1) ?? '');
  entry.edit.recent = entry.details.recent.slice(newest + 1);
  entry.tidy();
}
