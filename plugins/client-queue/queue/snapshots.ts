import { setImmediate } from 'node:timers/promises';
import { join } from 'node:path';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import type { Log } from '../../../core/log/log.js';
import type { Journal } from './journal.js';
import type { QueuedEntry } from './queued-entry.js';
import type { SnapshotFile } from './snapshot-file.js';
import { joinHistory, snapshotName, writeSnapshot } from './snapshot-writer.js';

export interface SnapshotsInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly journal: Journal;
  readonly log: Log;
  /** The one that was found at the start. */
  readonly current: SnapshotFile | undefined;
  /** A snapshot is due when the journal since the last one has so many bytes, and a quarter of that one. */
  readonly journalBytes: number;
  /** The journal never grows longer than that, however large the snapshot is. */
  readonly mostJournalBytes: number;
}

/** Keeps the journal short: what it says is brought into a snapshot from time to time. */
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

  /** While it is true no snapshot is written: what is broken is still to be looked at. */
  set held(held: boolean) {
    this.#held = held;
  }

  /** The attempts of an entry, oldest first, as a JSON array. */
  async history(entry: QueuedEntry): Promise<string> {
    const { recent } = entry.details;
    const old = entry.historyBytes > 0 ? await this.#current?.history(entry) : undefined;
    return joinHistory(old ?? '[]', recent);
  }

  /** Writes one if it is time. Never rejects; one at a time. */
  async write(entries: () => Iterable<QueuedEntry>): Promise<void> {
    if (this.#closed || this.#held) return;
    if (this.#writing !== undefined || this.#input.journal.bytes >= this.#threshold) await this.#begin(entries);
  }

  /** Writes one that has all that is in memory now. False when there is none: it must not be written yet, or cannot. Never rejects. */
  async writeNow(entries: () => Iterable<QueuedEntry>): Promise<boolean> {
    // One that has begun before may have passed by what has changed since.
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
    const { journalBytes, mostJournalBytes } = this.#input;
    const usual = Math.min(Math.max(journalBytes, (this.#current?.bytes ?? 0) / 4), mostJournalBytes);
    return Math.max(usual, this.#notBefore);
  }

  async #write(entries: () => Iterable<QueuedEntry>): Promise<boolean> {
    const { folder, files, journal, log } = this.#input;
    // Whatever was acknowledged is in memory by then: its promise has been heard.
    await setImmediate();
    const upTo = journal.last;
    try {
      const before = this.#current;
      const written = await writeSnapshot({ folder, files, entries: entries(), before, upTo });
      await journal.mark({ snapshot: written.file.name, upTo }).catch(async (error: unknown) => {
        // The journal may name it all the same: the file stays until the next one.
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
