import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { nodeFiles } from '../../../core/disk/file-layer.js';
import { findAtTarget } from '../../../core/spool/restoration.js';
import type { LinkTarget } from '../../../core/spool/spool.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { OpenedRelayQueue } from './file-relay-queue.js';
import type { QueueBounds } from './upkeep.js';
import { snapshotName } from './snapshots.js';

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
  }: { readonly started: Promise<void>; readonly open: () => Promise<OpenedRelayQueue>; readonly log: Log },
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
  readonly #opening: Promise<OpenedRelayQueue>;
  readonly #dueListeners = new Set<() => void>();
  #queue: OpenedRelayQueue | undefined;
  #failure: string | undefined;
  #bounds: QueueBounds | undefined;
  #begun = false;

  constructor(started: Promise<void>, open: () => Promise<OpenedRelayQueue>, log: Log) {
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

  get #now(): OpenedRelayQueue {
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
  locate(placement: LinkTarget) {
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
    return this.#queue?.figures() ?? { quarantined: 0, aside: 0, damaged: 0 };
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
  bytes = async (uid: string) => this.#now.bytes?.(uid);
  find = async (uid: string) => this.#now.find(uid);
  list = async (...given: Parameters<OpenedRelayQueue['list']>) => this.#now.list(...given);
  count = async (...given: Parameters<OpenedRelayQueue['count']>) => this.#now.count(...given);
  statistics = async (now: number) => this.#now.statistics(now);
  mutate = async (...given: Parameters<OpenedRelayQueue['mutate']>) => this.#now.mutate(...given);
  preview = async (...given: Parameters<OpenedRelayQueue['preview']>) => this.#now.preview(...given);
  noticed = async (...given: Parameters<OpenedRelayQueue['noticed']>) => this.#now.noticed(...given);
  quarantined = async () => this.#now.quarantined();
  openQuarantined = async (name: string) => this.#now.openQuarantined(name);
  discardQuarantined = async (name: string) => this.#now.discardQuarantined(name);
  recover = async (...given: Parameters<OpenedRelayQueue['recover']>) => this.#now.recover(...given);
}
