import { performance } from 'node:perf_hooks';
import { problem } from './problem.js';
import { type ClientPath, FairLine } from './turns.js';

export interface FairQueueOptions {
  readonly concurrency: number;
  /** Tasks at once below a name of a path, whose first name, the protocol, has the level 0; no limit where absent. */
  readonly limit?: (name: string, level: number) => number;
  /** Tasks of one client that may wait. */
  readonly maxWaitingPerClient: number;
  /** Tasks of one protocol that may wait. */
  readonly maxWaiting: number;
  /** How long a task may wait, up to a second more; for ever if absent. */
  readonly maxWaitMs?: number;
  /** Value of `Retry-After` in a refusal, and its sentence. */
  readonly retryAfterSeconds: number;
  readonly detail: string;
}

/** The protocol, the networks of the client from wide to narrow, the client. */
export type TaskPath = readonly [protocol: string, ...client: ClientPath];

interface Waiter {
  readonly path: TaskPath;
  readonly start: () => void;
  readonly refuse: () => void;
  /** Monotonic, in milliseconds. */
  readonly since: number;
}

/** How often tasks are looked for that have waited too long. */
const lookMs = 1000;

/**
 * Runs few tasks at once. At each level of their paths the names take turns, and have limits: a client or network with
 * many tasks delays only itself, and one protocol under attack does not block the other.
 */
export class FairQueue {
  readonly #options: FairQueueOptions;
  readonly #line = new FairLine<Waiter>();
  /** Those that may wait no longer than a limit, the oldest first. */
  readonly #limited = new Set<Waiter>();
  #isTimed = false;
  /** Running tasks by name, where names have limits. */
  readonly #below = new Map<string, number>();
  #running = 0;

  constructor(options: FairQueueOptions) {
    this.#options = options;
  }

  /** No task waits. */
  get idle(): boolean {
    return this.#line.count === 0;
  }

  /** @throws Problem `unavailable` when too many tasks of the client, or of its protocol, wait, or this one waits for too long */
  async run<T>(path: TaskPath, task: () => Promise<T>): Promise<T> {
    await this.enter(path);
    try {
      return await task();
    } finally {
      this.leave(path);
    }
  }

  /**
   * Resolves when a task may start, which then must `leave`; undefined when it may at once.
   *
   * @param atEnd functions that are called when the task is not wanted any more: gets one, when it must wait
   * @throws Problem as `run`, also when it is not wanted any more
   */
  enter(path: TaskPath, atEnd?: (() => void)[]): Promise<void> | undefined {
    if (this.#running < this.#options.concurrency && path.every(this.#hasRoom)) {
      this.#count(path, 1);
      return undefined;
    }
    this.#makeRoom(path);
    return new Promise<void>((resolve, reject) => this.#wait(path, atEnd, resolve, () => reject(this.#refusal())));
  }

  leave(path: TaskPath): void {
    this.#count(path, -1);
    while (this.#line.count > 0 && this.#running < this.#options.concurrency) {
      const next = this.#line.take(this.#hasRoom);
      if (next === undefined) return;
      this.#count(next.path, 1);
      this.#end(next).start();
    }
  }

  /** Protocols have no limit. */
  readonly #hasRoom = (name: string, level: number): boolean =>
    level === 0 || this.#options.limit === undefined || (this.#below.get(name) ?? 0) < this.#options.limit(name, level);

  #count(path: TaskPath, by: 1 | -1): void {
    this.#running += by;
    if (this.#options.limit === undefined) return;
    for (let level = 1; level < path.length; level += 1) {
      const name = path[level] ?? '';
      const count = (this.#below.get(name) ?? 0) + by;
      if (count > 0) this.#below.set(name, count);
      else this.#below.delete(name);
    }
  }

  #makeRoom(path: TaskPath): void {
    const { maxWaiting, maxWaitingPerClient } = this.#options;
    if (this.#line.countOf(path) >= maxWaitingPerClient) throw this.#refusal();
    if (this.#line.countOf(path.slice(0, 1)) < maxWaiting) return;
    const newest = this.#line.takeFromLargest(path);
    if (newest === undefined) throw this.#refusal();
    this.#end(newest).refuse();
  }

  #wait(path: TaskPath, atEnd: (() => void)[] | undefined, start: () => void, refuse: () => void): void {
    const waiter: Waiter = { path, start, refuse, since: performance.now() };
    this.#line.add(path, waiter);
    atEnd?.push(() => this.#giveUp(waiter));
    if (this.#options.maxWaitMs === undefined) return;
    this.#limited.add(waiter);
    this.#lookLater(this.#options.maxWaitMs);
  }

  /** One timer for all: most wait for a moment. */
  #lookLater(maxWaitMs: number): void {
    if (this.#isTimed) return;
    this.#isTimed = true;
    setTimeout(() => this.#refuseOverdue(maxWaitMs), Math.min(maxWaitMs, lookMs));
  }

  #giveUp(waiter: Waiter): void {
    if (this.#line.remove(waiter.path, waiter)) this.#end(waiter).refuse();
  }

  #refuseOverdue(maxWaitMs: number): void {
    this.#isTimed = false;
    const before = performance.now() - maxWaitMs;
    for (const waiter of this.#limited) {
      if (waiter.since > before) break;
      this.#giveUp(waiter);
    }
    if (this.#limited.size > 0) this.#lookLater(maxWaitMs);
  }

  #end(waiter: Waiter): Waiter {
    this.#limited.delete(waiter);
    return waiter;
  }

  #refusal(): Error {
    const { detail, retryAfterSeconds } = this.#options;
    return problem('unavailable', { detail, headers: { 'Retry-After': String(retryAfterSeconds) } });
  }
}
