import { join } from 'node:path';
import { isUnwritable } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { startError } from '../../../core/problem.js';
import { applyChange, type ChangeDeps } from './change.js';
import type { Journal } from './journal.js';
import { type JournalVisitor } from './journal.js';
import type { Quarantine } from './quarantine.js';
import type { QueuedEntry } from './queued-entry.js';
import { readSnapshot, SnapshotFile, snapshotForm, snapshotName } from './snapshots.js';
import { acceptEntry, restoreEntry } from './stored-entry.js';

interface LoadInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly journal: Journal;
  readonly quarantine: Quarantine;
  readonly deps: ChangeDeps;
}

export interface Loaded {
  readonly entries: readonly QueuedEntry[];
  readonly snapshot: SnapshotFile | undefined;
  /** Nothing acknowledged is missing, so a message without an entry was never acknowledged. */
  readonly whole: boolean;
  /** The largest known lease token. */
  readonly token: number;
  /** Number of the last journal record that the snapshot contains. */
  readonly upTo: number;
}

/** Reads snapshot and journal. Damaged records go to quarantine; all others are returned. */
export async function loadEntries(input: LoadInput): Promise<Loaded> {
  const loader = new Loader(input);
  const snapshot = await loader.readSnapshot();
  await loader.replay();
  return {
    entries: [...loader.entries.values()],
    snapshot,
    whole: loader.whole && input.journal.damage.length === 0,
    token: loader.token,
    upTo: loader.upTo,
  };
}

class Loader {
  readonly entries = new Map<string, QueuedEntry>();
  whole = true;
  token = 0;
  /** Number of the last record that the snapshot contains. */
  upTo = 0;
  readonly #input: LoadInput;

  constructor(input: LoadInput) {
    this.#input = input;
  }

  /**
   * A snapshot with more records than the one that the journal names is valid: a process may have finished it and died
   * before the journal was marked. One with fewer is out of date: it could not be removed.
   */
  async readSnapshot(): Promise<SnapshotFile | undefined> {
    const { folder, files, journal, quarantine } = this.#input;
    const found = (await files.readdir(folder)).filter((name) => snapshotName.test(name)).sort();
    const marked = journal.marker?.snapshot ?? null;
    if (journal.marker === undefined && found.length > 0) this.whole = false;
    const snapshot = await this.#readNewest(found);
    if (snapshot === undefined && marked !== null) this.whole = false;
    for (const other of found) {
      if (other === snapshot?.name) continue;
      if (this.whole) {
        await files.unlink(join(folder, other)).catch((error: unknown) => {
          if (!isUnwritable(error)) throw error;
        });
      } else await quarantine.move(join(folder, other), 'It is an older snapshot of the queue.');
    }
    return snapshot;
  }

  async #readNewest(found: readonly string[]): Promise<SnapshotFile | undefined> {
    const { marker, last } = this.#input.journal;
    const newest = found.at(-1);
    if (newest === undefined) return undefined;
    const read = await this.#read(newest);
    const marked = marker?.snapshot ?? null;
    if (marker === undefined || newest === marked) {
      this.upTo = marker?.upTo ?? 0;
      if (!read.whole) this.whole = false;
      return read.file;
    }
    // The clock may have gone back between two snapshots: their names do not tell which one is newer.
    if (read.upTo < marker.upTo || (!read.whole && marked !== null && found.includes(marked))) {
      await read.file.close();
      this.entries.clear();
      return this.#readNewest(found.slice(0, -1));
    }
    if (!read.whole || read.upTo > last) this.whole = false;
    this.upTo = Math.min(read.upTo, last);
    return read.file;
  }

  async #read(name: string): Promise<{ readonly file: SnapshotFile; readonly whole: boolean; readonly upTo: number }> {
    const { folder, files, quarantine, deps } = this.#input;
    const path = join(folder, name);
    const fd = await files.open(path, 'r');
    const { form, whole, bytes, upTo } = await readSnapshot(files, fd, {
      entry: ({ stored, envelope, historyAt, historyBytes }) => {
        const entry = restoreEntry(stored, envelope, deps);
        entry.historyAt = historyAt;
        entry.historyBytes = historyBytes;
        this.#add(entry);
      },
      damaged: async (line) => {
        await quarantine.save('snapshot-line', line, 'A line of the snapshot of the queue is damaged.');
      },
    });
    if (form !== undefined && form > snapshotForm) {
      await files.close(fd);
      throw startError(`${path} was written by a newer version of Postern. Start that version, or restore a backup.`);
    }
    return { file: new SnapshotFile(name, files, fd, bytes), whole, upTo };
  }

  #add(entry: QueuedEntry): void {
    this.entries.set(entry.uid, entry);
    for (const { token } of entry.details.leases) this.token = Math.max(this.token, token);
  }

  async replay(): Promise<void> {
    const { journal, quarantine, deps } = this.#input;
    const visitor: JournalVisitor = {
      accept: (accepted) => {
        if (!this.entries.has(accepted.envelope.uid)) this.#add(acceptEntry(accepted, deps));
      },
      change: (change) => {
        const entry = this.entries.get(change.uid);
        this.token = Math.max(this.token, change.lease?.token ?? 0);
        if (entry !== undefined && change.revision > entry.revision) applyChange(entry, change, deps);
      },
      put: (stored, envelope, recent) => {
        const known = this.entries.get(stored.uid);
        if (known !== undefined && known.revision > stored.revision) return;
        const entry = restoreEntry(stored, envelope, deps);
        entry.historyAt = known?.historyAt ?? 0;
        entry.historyBytes = known?.historyBytes ?? 0;
        if (recent.length > 0) entry.edit.recent = recent.map((attempt) => JSON.stringify(attempt));
        this.#add(entry);
      },
      drop: (uid) => void this.entries.delete(uid),
      damaged: async (bytes) => {
        this.whole = false;
        await quarantine.save('journal-record', bytes, 'A record of the journal of the queue cannot be understood.');
      },
    };
    await journal.replay(this.upTo, visitor);
  }
}
