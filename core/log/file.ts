import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.js';
import type { HealthReport } from '../contracts/health.js';
import { pluralize } from '../text/format.js';

export interface LogFileOptions {
  /** Absolute folder; created with mode 0700 when missing. */
  readonly folder: string;
  /** Bytes after which the next file of the day begins. */
  readonly maxFileBytes: number;
  /** Files kept, including the current one; older ones are removed. */
  readonly keepFiles: number;
  /** Bytes kept in memory while writes fail; beyond them new lines are dropped and counted. */
  readonly maxPendingBytes?: number;
  /** Milliseconds between retries. */
  readonly retryMs?: number;
  readonly clock: Clock;
  /** Like `FileHandle.write`; tests let it fail. */
  readonly write?: (file: FileHandle, bytes: Buffer) => Promise<{ readonly bytesWritten: number }>;
}

/** Pause between writes: one write of many lines costs less. */
const restMs = 20;

/**
 * `postern-2026-11-21.log`, then `postern-2026-11-21.1.log`. Files are never renamed, so readers can keep them open.
 */
export const logFileName: RegExp = /^postern-(\d{4}-\d{2}-\d{2})(?:\.(\d{1,6}))?\.log$/;

interface Place {
  readonly day: string;
  readonly number: number;
}

/** A name in use, by a log file or by some other entry of that name. */
interface Taken extends Place {
  readonly isFile: boolean;
}

const nameOf = ({ day, number }: Place): string => `postern-${day}${number === 0 ? '' : `.${number}`}.log`;

/** Log files in a folder, oldest first. */
export async function listLogFiles(folder: string): Promise<readonly string[]> {
  return (await places(folder)).filter(({ isFile }) => isFile).map(nameOf);
}

async function places(folder: string): Promise<readonly Taken[]> {
  const found = (await readdir(folder, { withFileTypes: true })).flatMap((entry) => {
    const [, day, number] = logFileName.exec(entry.name) ?? [];
    return day === undefined ? [] : [{ day, number: Number(number ?? 0), isFile: entry.isFile() }];
  });
  return found.sort((a, b) => (a.day === b.day ? a.number - b.number : a.day < b.day ? -1 : 1));
}

/**
 * Appends lines in batches to one file per day and size. Never throws: while writes fail, lines wait in memory up to a
 * bound, `health` is degraded, and writing resumes by itself.
 */
export class LogFile {
  readonly #options: Required<LogFileOptions>;
  #file: (Place & { readonly handle: FileHandle; size: number }) | undefined;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #dropped = 0;
  /** The file ends in a partial line. */
  #torn = false;
  #failure: string | undefined;
  #working: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: LogFileOptions) {
    this.#options = {
      maxPendingBytes: 4 * 1024 * 1024,
      retryMs: 2000,
      write: (file, bytes) => file.write(bytes),
      ...options,
    };
  }

  /** @param line with its line end */
  append(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#closed || this.#pendingBytes + bytes.length > this.#options.maxPendingBytes) {
      this.#dropped += 1;
      return;
    }
    this.#push(bytes);
    if (this.#retry === undefined) this.#work();
  }

  #push(line: Buffer): void {
    this.#pending.push(line);
    this.#pendingBytes += line.length;
  }

  health(): HealthReport {
    const figures = { pendingBytes: this.#pendingBytes, droppedLines: this.#dropped, fileBytes: this.#file?.size ?? 0 };
    if (this.#failure === undefined) return { status: 'up', figures };
    const lost = this.#dropped > 0 ? `, ${pluralize(this.#dropped, 'line was', 'lines were')} dropped` : '';
    return {
      status: 'degraded',
      why: `The log cannot be written (${this.#failure})${lost}; the newest lines are kept in memory.`,
      figures,
    };
  }

  /** Resolves when all appended lines are written, or a write has failed. */
  async flush(): Promise<void> {
    if (this.#retry !== undefined) this.#again();
    // The current round may have begun before the newest line; the next one includes it.
    await this.#working;
    await this.#working;
  }

  async close(): Promise<void> {
    await this.flush();
    this.#closed = true;
    while (this.#working !== undefined) await this.#working;
    clearTimeout(this.#retry);
    this.#retry = undefined;
    await this.#leave();
  }

  #work(): void {
    this.#working ??= this.#run();
  }

  async #run(): Promise<void> {
    // Collects the lines of one tick into one write.
    await new Promise((resolve) => setImmediate(resolve));
    try {
      await this.#drain();
      await new Promise((resolve) => setTimeout(resolve, restMs));
    } catch (error) {
      await this.#fail(error);
    }
    this.#working = undefined;
    const isStuck = this.#failure !== undefined && this.#closed;
    if (this.#pending.length > 0 && this.#retry === undefined && !isStuck) this.#work();
  }

  /** Writes the lines that wait now; later ones wait for the next round. */
  async #drain(): Promise<void> {
    for (let left = this.#pending.length; left > 0;) {
      const file = await this.#current();
      const lines = this.#takeFitting(this.#options.maxFileBytes - file.size);
      const head = this.#torn ? [Buffer.from('\n')] : [];
      const { bytesWritten } = await this.#options.write(file.handle, Buffer.concat([...head, ...lines]));
      file.size += bytesWritten;
      left -= this.#settle(lines, bytesWritten - head.length);
      if (this.#pending.length === 0) this.#recover();
    }
  }

  /** The next lines that fit into the file, at least one. */
  #takeFitting(room: number): readonly Buffer[] {
    let bytes = 0;
    const end = this.#pending.findIndex((line) => (bytes += line.length) > room);
    return this.#pending.slice(0, end === -1 ? undefined : Math.max(1, end));
  }

  /**
   * Removes written lines and returns their number; a partly written line is written again, whole, on a line of its
   * own.
   */
  #settle(lines: readonly Buffer[], bytesWritten: number): number {
    let left = bytesWritten;
    let written = 0;
    for (const line of lines) {
      if (left < line.length) break;
      left -= line.length;
      written += 1;
    }
    this.#torn = written < lines.length && left !== 0;
    for (const line of this.#pending.splice(0, written)) this.#pendingBytes -= line.length;
    return written;
  }

  async #current(): Promise<{ readonly handle: FileHandle; size: number }> {
    const day = new Date(this.#options.clock.now()).toISOString().slice(0, 10);
    const file = this.#file;
    if (file !== undefined && file.day === day && file.size < this.#options.maxFileBytes) return file;
    const { folder, keepFiles } = this.#options;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await this.#leave();
    const found = await places(folder);
    const last = found.findLast((place) => place.day === day) ?? { number: 0, isFile: true };
    const full = !last.isFile || (file !== undefined && file.day === day && file.number === last.number);
    const opened = await this.#open({ day, number: full ? last.number + 1 : last.number });
    const others = found.filter((place) => place.isFile && nameOf(place) !== nameOf(opened));
    for (const old of others.slice(0, Math.max(0, others.length + 1 - keepFiles))) {
      await rm(join(folder, nameOf(old)), { force: true });
    }
    return opened;
  }

  async #open(place: Place): Promise<Place & { readonly handle: FileHandle; size: number }> {
    const handle = await open(join(this.#options.folder, nameOf(place)), 'a+', 0o600);
    try {
      const { size } = await handle.stat();
      this.#torn = size > 0 && (await handle.read(Buffer.alloc(1), 0, 1, size - 1)).buffer[0] !== 0x0a;
      if (size < this.#options.maxFileBytes) {
        this.#file = { ...place, handle, size };
        return this.#file;
      }
    } finally {
      if (this.#file?.handle !== handle) await handle.close();
    }
    return this.#open({ day: place.day, number: place.number + 1 });
  }

  async #leave(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.handle.close().catch(() => undefined);
  }

  async #fail(error: unknown): Promise<void> {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'error';
    this.#failure = code;
    await this.#leave();
    if (!this.#closed) this.#retry = setTimeout(() => this.#again(), this.#options.retryMs).unref();
  }

  #again(): void {
    clearTimeout(this.#retry);
    this.#retry = undefined;
    if (this.#pending.length > 0) this.#work();
  }

  #recover(): void {
    this.#failure = undefined;
    if (this.#dropped === 0) return;
    const dropped = this.#dropped;
    this.#dropped = 0;
    const time = new Date(this.#options.clock.now()).toISOString();
    const line = { level: 'warn', time, dropped, msg: 'log lines were dropped while the file could not be written' };
    this.#push(Buffer.from(`${JSON.stringify(line)}\n`));
  }
}

export const auditName: RegExp = /^audit(?:\.\d{1,6})?\.log$/;

/** Path of an audit log file: 0 is the current one, 1 the newest rotated one. */
export const auditPath = (folder: string, number: number): string =>
  join(folder, number === 0 ? 'audit.log' : `audit.${number}.log`);

/**
 * Opens it for reading. Undefined unless it is a regular file: a folder or link of that name is not the log, and a FIFO
 * would block.
 */
export async function openAuditFile(folder: string, number: number): Promise<FileHandle | undefined> {
  let file: FileHandle;
  try {
    file = await open(auditPath(folder, number), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (['ENOENT', 'ELOOP'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw error;
  }
  if ((await file.stat()).isFile()) return file;
  await file.close();
  return undefined;
}
