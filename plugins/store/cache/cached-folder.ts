import { createHash } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { type FolderNames, nothingRead, readNames } from './folder-reading.js';
import { bytesOfRows, type FolderRows, idAt } from './folder-rows.js';
import { readIndex, writeIndex } from './index-file.js';
import { MessageHeads } from './message-head.js';
import { logHeadBytes, SummaryLog } from './summary-log.js';
import { readRecord, type SummaryRecord, writeRecord } from './summary-record.js';
import { TimeSlice } from '../../../core/concurrency.js';

/** The mailboxes of one server: everything is below `root`, the cache files in `files`. */
export interface CacheSite {
  /** Resolved folder of the mailboxes. */
  readonly root: string;
  /** Folder of the cache files; null to keep nothing on disk. */
  readonly files: string | null;
  /** Smaller folders are not written; they are read again after a restart. */
  readonly keptFrom: number;
}

/** The log is compacted when it has this many more records than twice the messages. */
const wasteAllowed = 1000;

/** Cache of one folder: its names for as long as its directories are unchanged, and the summaries of its messages. */
export class CachedFolder {
  readonly #site: CacheSite;
  readonly #path: string;
  readonly #timeSlice = new TimeSlice();
  #names: FolderNames = nothingRead;
  #log: SummaryLog;
  /** Offsets of records found in a log by id, until they are attached to their messages. */
  #found: ReadonlyMap<string, number> | undefined;
  #isLoaded = false;
  /** The last read; the next one waits for it. */
  #running: Promise<unknown> = Promise.resolve();
  /** A read that has not begun: callers that arrive before it starts share it. */
  #queued: Promise<FolderRows | undefined> | undefined;
  #kept = '';

  /** @param path absolute, below the root */
  constructor(site: CacheSite, path: string) {
    this.#site = site;
    this.#path = path;
    this.#log = this.#beginLog();
  }

  /** Bytes of memory. */
  get memory(): number {
    return bytesOfRows(this.#names.rows) + this.#log.memory;
  }

  /** The last known rows, without checking the folder; undefined when there are none. */
  get known(): FolderRows | undefined {
    return this.#names === nothingRead ? undefined : this.#names.rows;
  }

  get log(): SummaryLog {
    return this.#log;
  }

  /** True when the rows are complete and the folder was not changing. */
  get isQuiet(): boolean {
    return this.#names.stamps.new !== null && this.#names.stamps.cur !== null;
  }

  /**
   * The messages that are in the folder now.
   * @param now milliseconds since 1970, not later than now
   * @param force read the directories even when they are unchanged
   * @returns undefined when there is no such folder
   */
  rows(now: number, force: boolean): Promise<FolderRows | undefined> {
    if (!force && this.#queued !== undefined) return this.#queued;
    const reading = this.#running.then(() => {
      if (this.#queued === reading) this.#queued = undefined;
      return this.#read(now, force);
    });
    if (!force) this.#queued = reading;
    this.#running = reading.catch(() => undefined);
    return reading;
  }

  async #read(now: number, force: boolean): Promise<FolderRows | undefined> {
    if (!this.#isLoaded) await this.#load();
    this.#isLoaded = true;
    const deps = { root: this.#site.root, folder: this.#path, now, timeSlice: this.#timeSlice };
    const names = await readNames(this.#names, deps, force);
    if (names === undefined) return this.#forget();
    if (this.#found !== undefined) attach(names.rows, this.#found);
    this.#found = undefined;
    this.#names = names;
    return names.rows;
  }

  /** The folder is gone: its files are removed. */
  #forget(): undefined {
    this.#names = nothingRead;
    this.#found = undefined;
    this.#log.close();
    this.#log = this.#beginLog();
    for (const path of [this.#file('index'), this.#file('summaries')]) {
      if (path !== undefined) rmSync(path, { force: true });
    }
  }

  /** The summary of a message, read if necessary; undefined when its file is gone. */
  summary(rows: FolderRows, row: number, heads: MessageHeads): SummaryRecord | undefined {
    const offset = rows.summary[row] ?? 0;
    const known = offset === 0 ? undefined : this.#log.read(offset);
    const id = idAt(rows, row);
    return (known === undefined ? undefined : readRecord(known, id)) ?? this.readMessage(rows, row, heads);
  }

  /** Reads the message and stores its summary. */
  readMessage(rows: FolderRows, row: number, heads: MessageHeads): SummaryRecord | undefined {
    const read = heads.read(rows, row);
    if (read === undefined) return undefined;
    const record = writeRecord(idAt(rows, row), read);
    rows.summary[row] = record === undefined ? 0 : this.#log.append(record);
    return read;
  }

  heads(): MessageHeads {
    return new MessageHeads(this.#site.root, this.#path);
  }

  /** The summaries are unreliable: all messages are read again. */
  forgetSummaries(): void {
    this.#log.close();
    this.#log = this.#beginLog();
    this.#names.rows.summary.fill(0);
    this.#found = undefined;
  }

  /** Writes the cache files when they are out of date. @throws errors of the file system */
  keep(): void {
    const { rows } = this.#names;
    const path = this.#file('index');
    if (path === undefined || rows.count < this.#site.keptFrom || this.#state() === this.#kept) return;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    if (this.#log.records > 2 * rows.count + wasteAllowed || !this.#log.isInPlace) this.#compact();
    this.#log.flush();
    const { mark, end, records } = this.#log;
    const folder = relative(this.#site.root, this.#path);
    writeIndex(path, { folder, names: this.#names, log: { mark, end, records } });
    this.#kept = this.#state();
  }

  close(): void {
    this.#log.close();
  }

  #state(): string {
    const { rows, stamps } = this.#names;
    return [this.#log.mark, this.#log.end, stamps.new, stamps.cur, rows.count].join(' ');
  }

  #beginLog(path = this.#file('summaries')): SummaryLog {
    return SummaryLog.begin({ path, folder: relative(this.#site.root, this.#path) });
  }

  #file(kind: 'index' | 'summaries'): string | undefined {
    if (this.#site.files === null) return undefined;
    const key = createHash('sha256').update(relative(this.#site.root, this.#path)).digest('hex').slice(0, 32);
    return join(this.#site.files, `${key}.${kind}`);
  }

  /** Loads the files of an earlier process. Unreliable data is ignored. */
  async #load(): Promise<void> {
    const [index, summaries] = [this.#file('index'), this.#file('summaries')];
    if (index === undefined || summaries === undefined) return;
    const folder = relative(this.#site.root, this.#path);
    const stored = readIndex(index, folder);
    const log = SummaryLog.open({ path: summaries, folder });
    const isItsLog = stored !== undefined && log !== undefined && log.mark === stored.log.mark;
    const isWhole = isItsLog && log.end >= stored.log.end;
    if (stored !== undefined) {
      if (!isWhole) stored.names.rows.summary.fill(0);
      this.#names = stored.names;
    }
    if (log === undefined) return;
    this.#log = log;
    const [from, records] = isWhole ? [stored.log.end, stored.log.records] : [logHeadBytes, 0];
    this.#found = await log.adopt(from, records, this.#timeSlice);
  }

  /** Writes a new log without the records of removed messages. Must not run while a question is being answered. */
  #compact(): void {
    const path = this.#file('summaries');
    if (path === undefined) return;
    const fresh = this.#beginLog(`${path}.new`);
    const old = this.#log;
    const { rows } = this.#names;
    const summary = rows.summary.map((offset) => {
      const record = offset === 0 ? undefined : old.read(offset);
      return record === undefined ? 0 : fresh.append(record);
    });
    fresh.moveTo(path);
    rows.summary.set(summary);
    this.#log = fresh;
    old.close();
  }
}

function attach(rows: FolderRows, found: ReadonlyMap<string, number>): void {
  if (found.size === 0) return;
  for (let row = 0; row < rows.count; row++) {
    if (rows.summary[row] === 0) rows.summary[row] = found.get(idAt(rows, row)) ?? 0;
  }
}
