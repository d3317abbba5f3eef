import { join } from 'node:path';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import { folderSyncOf } from '../../../core/disk/folder.js';
import { uniqueId } from '../../../core/disk/id.js';
import { keptAttempts } from './change.js';
import type { QueuedEntry } from './queued-entry.js';
import { encodeLine } from './snapshot-line.js';
import { snapshotForm } from './snapshot-reader.js';
import { SnapshotFile } from './snapshot-file.js';
import { storeEntry } from './stored-entry.js';
import { TimeSlice } from '../../../core/concurrency.js';

const pieceBytes = 1024 * 1024;
const unfinishedSuffix = '.tmp';
export const snapshotName = /^snapshot-[0-9a-z]{20}$/;
/** Left by a process that died while it wrote. */
export const unfinishedSnapshotName = /^snapshot-[0-9a-z]{20}\.tmp$/;

export interface SnapshotInput {
  readonly folder: string;
  readonly files: FileLayer;
  /** They may change meanwhile: each is as it was at some moment since the beginning. */
  readonly entries: Iterable<QueuedEntry>;
  /** The one that holds the histories until now. */
  readonly before: SnapshotFile | undefined;
  /** Number of the newest record of the journal that is in it. */
  readonly upTo: number;
}

export interface WrittenSnapshot {
  readonly file: SnapshotFile;
  /** Tells the entries where their histories are now. */
  adopt(): void;
}

interface HistoryPlace {
  readonly entry: QueuedEntry;
  readonly at: number;
  readonly bytes: number;
  /** The newest attempt that is in it. */
  readonly recent: readonly string[];
}

/** Writes all entries into a new file, durably. When it rejects nothing is left. */
export async function writeSnapshot(input: SnapshotInput): Promise<WrittenSnapshot> {
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

/** What a history says; nothing where the disk has spoilt it, for mail does not hang on it. */
export function attemptsOf(history: string): readonly unknown[] {
  try {
    const known: unknown = JSON.parse(history);
    return Array.isArray(known) ? known : [];
  } catch {
    return [];
  }
}

/** The newest attempts of an older history, a JSON array, and of what came behind it. */
export function joinHistory(old: string, recent: readonly string[]): string {
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
