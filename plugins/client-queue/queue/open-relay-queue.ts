import { randomInt } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Clock } from '../../../core/clock.js';
import type { OpenedRelayQueue, QueueBounds, QueueQuarantine } from '../../../core/contracts/relay-queue-store.js';
import { isUnwritable } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles, readOnlyFiles } from '../../../core/disk/file-layer.js';
import { makeFolder } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import { findAtTarget } from '../../../core/spool/restoration.js';
import type { LinkTarget } from '../../../core/spool/spool.js';
import { Bodies, shards } from './bodies.js';
import type { ChangeDeps } from './change.js';
import { isDamageHold } from './hold-reasons.js';
import { FileRelayQueue } from './file-relay-queue.js';
import { Journal } from './journal.js';
import { loadEntries } from './loading.js';
import { Quarantine } from './quarantine.js';
import { Interned, normalReason } from './queued-entry.js';
import { snapshotName, Snapshots, unfinishedSnapshotName } from './snapshots.js';
import { defaultLongestPauseMs } from './upkeep.js';

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
export async function openRelayQueue(options: RelayQueueOptions): Promise<FileRelayQueue> {
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

/** A snapshot or journal of this size is read after the server listens: it takes half a second and more. Bytes. */
const largeSnapshot = 16 * 2 ** 20;
const largeJournal = 64 * 2 ** 20;
/** Milliseconds that a stop waits for a queue that is still being read. */
const closeMs = 5000;

/** The queue; a large one is read after `started`, and a placeholder answers until then. */
export async function openInTime(
  folder: string,
  {
    started,
    open,
    log,
  }: { readonly started: Promise<void>; readonly open: () => Promise<FileRelayQueue>; readonly log: Log },
): Promise<OpenedRelayQueue> {
  const [snapshots, segments] = await Promise.all([
    bytesOf(folder, (name) => snapshotName.test(name)),
    bytesOf(join(folder, 'journal'), (name) => name.endsWith('.segment')),
  ]);
  return snapshots > largeSnapshot || segments > largeJournal ? new OpeningQueue(started, open, log) : open();
}

async function bytesOf(folder: string, isWanted: (name: string) => boolean): Promise<number> {
  const names = await readdir(folder).catch(() => []);
  const sizes = names.filter(isWanted).map((name) =>
    stat(join(folder, name)).then(
      ({ size }) => size,
      () => 0,
    ),
  );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

/**
 * Placeholder for a queue that is still being read. Submissions wait; operations on entries throw `unavailable`; no
 * recipient is due.
 */
class OpeningQueue implements OpenedRelayQueue {
  readonly quarantine: QueueQuarantine = {
    list: async () => this.#now.quarantine.list(),
    read: async (name) => this.#now.quarantine.read(name),
    discard: async (name) => this.#now.quarantine.discard(name),
    recover: async (options) => this.#now.quarantine.recover(options),
  };
  readonly #opening: Promise<FileRelayQueue>;
  readonly #dueListeners = new Set<() => void>();
  #queue: FileRelayQueue | undefined;
  #failure: string | undefined;
  #bounds: QueueBounds | undefined;
  #begun = false;

  constructor(started: Promise<void>, open: () => Promise<FileRelayQueue>, log: Log) {
    log.info('the queue is large: it is read while mail comes in already');
    this.#opening = started.then(() => {
      this.#begun = true;
      return open();
    });
    void this.#become(log);
  }

  async #become(log: Log): Promise<void> {
    try {
      const queue = await this.#opening;
      this.#queue = queue;
      if (this.#bounds !== undefined) queue.bound(this.#bounds);
      log.info({ entries: queue.size }, 'the queue is read');
      for (const listener of this.#dueListeners) listener();
    } catch (error) {
      this.#failure = error instanceof Error ? error.message : String(error);
      log.error({ err: error }, 'the queue cannot be read: nothing is relayed');
    }
  }

  get #now(): FileRelayQueue {
    if (this.#queue !== undefined) return this.#queue;
    const detail = this.complaint() ?? '';
    throw problem('unavailable', { detail, headers: { 'Retry-After': '5' } });
  }

  get size(): number {
    return this.#queue?.size ?? 0;
  }

  async prepare(...given: Parameters<OpenedRelayQueue['prepare']>) {
    const queue = await this.#opening.catch(() => this.#now);
    return queue.prepare(...given);
  }

  /** A message that is no longer needed may reappear this way: the next sweep removes it. */
  locate(placement: LinkTarget): Promise<string | null | undefined> {
    return this.#queue?.locate(placement) ?? findAtTarget(nodeFiles)(placement, Buffer.alloc(0));
  }

  async claim(...given: Parameters<OpenedRelayQueue['claim']>) {
    return this.#queue?.claim(...given) ?? [];
  }

  async notices(limit: number) {
    return this.#queue?.notices(limit) ?? [];
  }

  async housekeep(now: number): Promise<void> {
    await this.#queue?.housekeep(now);
  }

  nextDue(): number | null {
    return this.#queue?.nextDue() ?? null;
  }

  onDue(listener: () => void): () => void {
    if (this.#queue !== undefined) return this.#queue.onDue(listener);
    this.#dueListeners.add(listener);
    const undo = this.#opening.then(
      (queue) => queue.onDue(() => this.#dueListeners.has(listener) && listener()),
      () => undefined,
    );
    return () => {
      this.#dueListeners.delete(listener);
      void undo.then((forget) => forget?.());
    };
  }

  onOutcome(listener: Parameters<OpenedRelayQueue['onOutcome']>[0]): () => void {
    const undo = this.#opening.then(
      (queue) => queue.onOutcome(listener),
      () => undefined,
    );
    return () => void undo.then((forget) => forget?.());
  }

  complaint(): string | undefined {
    if (this.#queue !== undefined) return this.#queue.complaint();
    if (this.#failure !== undefined) return `The queue cannot be read, and nothing is relayed: ${this.#failure}`;
    return 'The queue is still being read since the start: mail for other servers is taken when that is done.';
  }

  figures() {
    return this.#queue?.figures() ?? { quarantined: 0, damaged: 0 };
  }

  bound(bounds: QueueBounds): void {
    this.#bounds = bounds;
    this.#queue?.bound(bounds);
  }

  async close(): Promise<void> {
    if (!this.#begun) return;
    const opened = this.#opening.then(
      (queue) => queue.close(),
      () => undefined,
    );
    await Promise.race([opened, pause(closeMs, undefined, { ref: false })]);
  }

  settle = async (...given: Parameters<OpenedRelayQueue['settle']>) => this.#now.settle(...given);
  open = async (uid: string) => this.#now.open(uid);
  bytes = async (uid: string) => this.#now.bytes(uid);
  find = async (uid: string) => this.#now.find(uid);
  list = async (...given: Parameters<OpenedRelayQueue['list']>) => this.#now.list(...given);
  count = async (...given: Parameters<OpenedRelayQueue['count']>) => this.#now.count(...given);
  statistics = async (...given: Parameters<OpenedRelayQueue['statistics']>) => this.#now.statistics(...given);
  mutate = async (...given: Parameters<OpenedRelayQueue['mutate']>) => this.#now.mutate(...given);
  preview = async (...given: Parameters<OpenedRelayQueue['preview']>) => this.#now.preview(...given);
  noticed = async (...given: Parameters<OpenedRelayQueue['noticed']>) => this.#now.noticed(...given);
}

interface StoppedQueue {
  /** Sentences about unreadable parts of the journal. */
  readonly damage: readonly string[];
  readonly open: number;
  readonly held: number;
  /** Held because of damage. */
  readonly damaged: number;
}

/** Inspects the queue of a stopped server without changing it. */
export async function lookAtStoppedQueue(folder: string, clock: Clock, log: Log): Promise<StoppedQueue> {
  const files = readOnlyFiles;
  const journal = await Journal.open(join(folder, 'journal'), { files, log, clock });
  const quarantine = new Quarantine({ folder: join(folder, 'quarantine'), files, clock, log });
  const texts = new Interned();
  const deps = { intern: (text: string): string => texts.of(text), reasonOf: normalReason };
  const loaded = await loadEntries({ folder, files, journal, quarantine, deps });
  await loaded.snapshot?.close();
  const open = loaded.entries.filter(({ finishedAt }) => finishedAt === null);
  const damage = journal.damage.map(({ sentence }) => sentence);
  if (!loaded.whole && damage.length === 0) damage.push('The snapshot or the journal of the queue is damaged.');
  return {
    damage,
    open: open.length,
    held: open.filter(({ state }) => state === 'held').length,
    damaged: open.filter(({ hold }) => isDamageHold(hold)).length,
  };
}
