import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import { isUnwritable } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { makeFolder } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { Bodies, shards } from './bodies.js';
import type { ChangeDeps } from './change.js';
import { FileRelayQueue, type OpenedRelayQueue } from './file-relay-queue.js';
import { Journal } from './journal.js';
import { loadEntries } from './loading.js';
import { Quarantine } from './quarantine.js';
import { Interned, normalReason } from './queued-entry.js';
import { snapshotName, Snapshots, unfinishedSnapshotName } from './snapshots.js';
import { defaultLongestPauseMs, type QueueBounds } from './upkeep.js';

export interface RelayQueueOptions extends QueueBounds {
  /** Exclusive to the queue: `data/queue`. One process at a time; the lock of the data folder ensures that. */
  readonly folder: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Maximum number of finished entries that are kept. */
  readonly maxFinished?: number;
  /** Attempts of dead processes are repeated within this time. */
  readonly spreadMs?: number;
  /** Name of the delivery target whose finder is `locate`. */
  readonly owner?: string;
  /**
   * Resolves when the commit log of the spool has restored every message; a missing message may reappear until then.
   * Immediately when absent.
   */
  readonly ready?: Promise<void>;
  readonly files?: FileLayer;
  /** Random integer below `limit`. */
  readonly random?: (limit: number) => number;
  readonly segmentBytes?: number;
  readonly maxSegments?: number;
  readonly journalBytes?: number;
}

const defaults = {
  maxFinished: 20_000,
  spreadMs: 5000,
  segmentBytes: 8 * 1024 * 1024,
  maxSegments: 32,
  journalBytes: 32 * 1024 * 1024,
};

const unknownFile = 'Unknown file in the queue folder.';

/** Opens the queue. Damage does not stop the start; data of a newer version does. */
export async function openRelayQueue(options: RelayQueueOptions): Promise<OpenedRelayQueue> {
  const files = options.files ?? nodeFiles;
  const { keepFinishedMs, maxEntries, keepDeadLetterMs = 0, maxPauseMs = defaultLongestPauseMs } = options;
  const { quarantineMs = Infinity, quarantineBytes = Infinity } = options;
  const settings = { ...defaults, random: (limit: number) => randomInt(limit), ...options, files };
  const { folder, clock, log, segmentBytes, maxSegments, journalBytes } = settings;
  await makeFolder(folder, files);
  const quarantine = new Quarantine({ folder: join(folder, 'quarantine'), files, clock, log });
  await quarantine.open();
  await quarantineUnknown(folder, files, quarantine);
  const bodies = new Bodies({ folder, files, clock, log, owner: options.owner });
  await bodies.open();
  const journalFolder = join(folder, 'journal');
  const asideBefore = await countIn(files, join(journalFolder, 'aside'));
  const segments = await countIn(files, journalFolder, '.segment');
  const journal = await Journal.open(journalFolder, { files, log, segmentBytes, maxSegments });
  const deps = changeDeps();
  const loaded = await loadEntries({ folder, files, journal, quarantine, deps });
  if (!loaded.whole && journal.damage.length === 0) {
    const now = new Date(clock.now()).toISOString();
    await journal.note(`damage-${clock.now()}.txt`, `At ${now} the snapshot or the journal of the queue was damaged.`);
  }
  const aside = await journal.countAside();
  const whole = loaded.whole && aside === asideBefore;
  const maxJournalBytes = Math.max(journalBytes, (segmentBytes * maxSegments) / 2);
  const bounds = { journalBytes, maxJournalBytes };
  const snapshots = new Snapshots({ folder, files, journal, log, current: loaded.snapshot, ...bounds });
  const queue = new FileRelayQueue({
    ...settings,
    bounds: { keepFinishedMs, maxEntries, keepDeadLetterMs, quarantineMs, quarantineBytes, maxPauseMs },
    journal,
    snapshots,
    bodies,
    quarantine,
    deps,
    crowded: segments >= maxSegments / 4,
    aside,
    loaded: { ...loaded, whole },
  });
  await queue.start();
  return queue;
}

/** Shares repeated texts and caches their normalised reasons. */
function changeDeps(): ChangeDeps {
  const texts = new Interned();
  const intern = (text: string): string => texts.of(text);
  return { intern, reasonOf: normalReason };
}

async function quarantineUnknown(folder: string, files: FileLayer, quarantine: Quarantine): Promise<void> {
  const own = new Set([...shards, 'journal', 'quarantine']);
  for (const name of await files.readdir(folder)) {
    const path = join(folder, name);
    const found = await files.lstat(path);
    if (own.has(name) && found.isDirectory()) continue;
    if (snapshotName.test(name) && found.isFile()) continue;
    if (unfinishedSnapshotName.test(name) && found.isFile()) await files.unlink(path).catch(unlessUnwritable);
    else await quarantine.move(path, unknownFile);
  }
}

/** Ignores a read-only disk: a later start does it. */
function unlessUnwritable(error: unknown): void {
  if (!isUnwritable(error)) throw error;
}

async function countIn(files: FileLayer, folder: string, suffix = ''): Promise<number> {
  return files.readdir(folder).then(
    (names) => names.filter((name) => name.endsWith(suffix)).length,
    () => 0,
  );
}
