import { problem } from './problem.js';
import { type ClientPath, FairLine } from './turns.js';

export interface FairQueueOptions {
  readonly concurrency: number;
  /** Tasks at once below a name of a path, whose first name has the level 0; no limit where absent. */
  readonly limit?: (name: string, level: number) => number;
  /** Tasks of one client that may wait. */
  readonly maxWaitingPerClient: number;
  /** Tasks of one protocol that may wait. */
  readonly maxWaiting: number;
  /** How long a task may wait; for ever if absent. */
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
}

/**
 * Runs few tasks at once. At each level of their paths the names take turns, and have limits: a client or network with
 * many tasks delays only itself, and one protocol under attack does not block the other.
 */
export class FairQueue {
  readonly #options: FairQueueOptions;
  readonly #waiting = new FairLine<Waiter>();
  /** Running tasks by name, where names have limits. */
  readonly #below = new Map<string, number>();
  #running = 0;

  constructor(options: FairQueueOptions) {
    this.#options = options;
  }

  /** No task waits. */
  get idle(): boolean {
    return this.#waiting.count === 0;
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
   * Resolves when a task may start, which then must `leave`; undefined when it may at once. When the signal, which is
   * asked for only where it must wait, aborts, it waits no more.
   *
   * @throws Problem as `run`, also when the signal aborts
   */
  enter(path: TaskPath, signal?: () => AbortSignal): Promise<void> | undefined {
    if (this.#running < this.#options.concurrency && path.every(this.#hasRoom)) {
      this.#count(path, 1);
      return undefined;
    }
    this.#makeRoom(path);
    return new Promise<void>((resolve, reject) => this.#wait(path, signal?.(), resolve, () => reject(this.#refusal())));
  }

  leave(path: TaskPath): void {
    this.#count(path, -1);
    while (this.#running < this.#options.concurrency) {
      const next = this.#waiting.take(this.#hasRoom);
      if (next === undefined) return;
      this.#count(next.path, 1);
      next.start();
    }
  }

  readonly #hasRoom = (name: string, level: number): boolean =>
    this.#options.limit === undefined || (this.#below.get(name) ?? 0) < this.#options.limit(name, level);

  #count(path: TaskPath, by: 1 | -1): void {
    this.#running += by;
    if (this.#options.limit === undefined) return;
    for (const name of path) {
      const count = (this.#below.get(name) ?? 0) + by;
      if (count > 0) this.#below.set(name, count);
      else this.#below.delete(name);
    }
  }

  #makeRoom(path: TaskPath): void {
    const { maxWaiting, maxWaitingPerClient } = this.#options;
    if (this.#waiting.countOf(path) >= maxWaitingPerClient) throw this.#refusal();
    if (this.#waiting.countOf(path.slice(0, 1)) < maxWaiting) return;
    const newest = this.#waiting.takeFromLargest(path);
    if (newest === undefined) throw this.#refusal();
    newest.refuse();
  }

  #wait(path: TaskPath, signal: AbortSignal | undefined, resolve: () => void, reject: () => void): void {
    const { maxWaitMs } = this.#options;
    const end = (settle: () => void) => (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', giveUp);
      settle();
    };
    const waiter: Waiter = { path, start: end(resolve), refuse: end(reject) };
    const giveUp = (): void => {
      if (this.#waiting.remove(path, waiter)) waiter.refuse();
    };
    const timer = maxWaitMs === undefined ? undefined : setTimeout(giveUp, maxWaitMs);
    this.#waiting.add(path, waiter);
    if (signal?.aborted === true) giveUp();
    else signal?.addEventListener('abort', giveUp);
  }

  #refusal(): Error {
    const { detail, retryAfterSeconds } = this.#options;
    return problem('unavailable', { detail, headers: { 'Retry-After': String(retryAfterSeconds) } });
  }
}
