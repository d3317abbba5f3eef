import { join } from 'node:path';
import { faultCode } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { startError } from '../../../core/start-error.js';
import { applyChange, type ChangeGround } from './change.js';
import type { Journal, JournalVisitor } from './journal.js';
import type { Quarantine } from './quarantine.js';
import type { QueuedEntry } from './queued-entry.js';
import { SnapshotFile } from './snapshot-file.js';
import { readSnapshot, snapshotForm } from './snapshot-reader.js';
import { snapshotName } from './snapshot-writer.js';
import { acceptEntry, restoreEntry } from './stored-entry.js';

export interface LoadInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly journal: Journal;
  readonly quarantine: Quarantine;
  readonly ground: ChangeGround;
}

export interface Loaded {
  readonly entries: readonly QueuedEntry[];
  readonly snapshot: SnapshotFile | undefined;
  /** Nothing that was acknowledged is missing: a message without an entry was never acknowledged. */
  readonly whole: boolean;
  /** The largest token of a lease that was ever given, as far as is known. */
  readonly token: number;
}

/** Reads snapshot and journal. What is damaged is put into quarantine, and everything else is there. */
export async function loadEntries(input: LoadInput): Promise<Loaded> {
  const loader = new Loader(input);
  const snapshot = await loader.readSnapshot();
  await loader.replay();
  return {
    entries: [...loader.entries.values()],
    snapshot,
    whole: loader.whole && !input.journal.broken,
    token: loader.token,
  };
}

class Loader {
  readonly entries = new Map<string, QueuedEntry>();
  whole = true;
  token = 0;
  readonly #input: LoadInput;

  constructor(input: LoadInput) {
    this.#input = input;
  }

  async readSnapshot(): Promise<SnapshotFile | undefined> {
    const { folder, files, journal, quarantine } = this.#input;
    const found = (await files.readdir(folder)).filter((name) => snapshotName.test(name)).sort();
    // Without a marker the journal has lost its beginning; the newest snapshot is better than nothing.
    const name = journal.marker === undefined ? found.at(-1) : journal.marker.snapshot;
    if (journal.marker === undefined && found.length > 0) this.whole = false;
    for (const other of found) {
      if (other === name) continue;
      // Left by a process that died while it changed from one to the next, unless nobody knows.
      if (journal.marker === undefined)
        await quarantine.move(join(folder, other), 'It is an older snapshot of the queue.');
      else await files.unlink(join(folder, other));
    }
    if (name === undefined || name === null) return undefined;
    return this.#read(name);
  }

  async #read(name: string): Promise<SnapshotFile | undefined> {
    const { folder, files, quarantine, ground } = this.#input;
    const path = join(folder, name);
    const fd = await files.open(path, 'r').catch((error: unknown) => {
      if (faultCode(error) === 'ENOENT') return undefined;
      throw error;
    });
    if (fd === undefined) {
      this.whole = false;
      return undefined;
    }
    const { form, whole, bytes } = await readSnapshot(files, fd, {
      entry: ({ stored, envelope, historyAt, historyBytes }) => {
        const entry = restoreEntry(stored, envelope, ground);
        entry.historyAt = historyAt;
        entry.historyBytes = historyBytes;
        this.#add(entry);
      },
      damaged: async (line) => {
        await quarantine.save('snapshot-line', line, 'A line of the snapshot of the queue is damaged.');
      },
    });
    if (form !== undefined && form > snapshotForm) {
      throw startError(`${path} was written by a newer version of Postern. Start that version, or restore a backup.`);
    }
    if (!whole) this.whole = false;
    return new SnapshotFile(name, files, fd, bytes);
  }

  #add(entry: QueuedEntry): void {
    this.entries.set(entry.uid, entry);
    for (const { token } of entry.details.leases) this.token = Math.max(this.token, token);
  }

  async replay(): Promise<void> {
    const { journal, quarantine, ground } = this.#input;
    const visitor: JournalVisitor = {
      accept: (accepted) => {
        if (!this.entries.has(accepted.envelope.uid)) this.#add(acceptEntry(accepted, ground));
      },
      change: (change) => {
        const entry = this.entries.get(change.uid);
        this.token = Math.max(this.token, change.lease?.token ?? 0);
        if (entry !== undefined && change.revision > entry.revision) applyChange(entry, change, ground);
      },
      put: (stored, envelope, recent) => {
        const known = this.entries.get(stored.uid);
        if (known !== undefined && known.revision > stored.revision) return;
        const entry = restoreEntry(stored, envelope, ground);
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
    await journal.replay(visitor);
  }
}
