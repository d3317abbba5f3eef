import { performance } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** A fixed number of permits, granted in the order of asking: bounds open files, for example. */
export class Semaphore {
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #taken = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get taken(): number {
    return this.#taken;
  }

  /** Resolves when a permit is granted; undefined when it is granted at once. Each caller must `release` its permit. */
  acquire(): Promise<void> | undefined {
    if (this.#taken < this.#limit) {
      this.#taken += 1;
      return undefined;
    }
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#taken -= 1;
    else next();
  }
}

/** One permit for several holders, which is returned with the last of them. */
export class SharedPermit {
  readonly #permits: Semaphore;
  #holders = 0;

  constructor(permits: Semaphore) {
    this.#permits = permits;
  }

  /** As `Semaphore.acquire`; granted at once while another holds it, who must have been granted it. */
  acquire(): Promise<void> | undefined {
    this.#holders += 1;
    return this.#holders === 1 ? this.#permits.acquire() : undefined;
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders === 0) this.#permits.release();
  }
}

/** Tasks with the same key run one after the other, in the order of asking; shared tasks of a key run side by side. */
export class KeyedMutex {
  readonly #queues = new Map<string, KeyQueue>();

  run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const queue = this.#queueOf(key);
    const before = queue.shared.length === 0 ? queue.exclusive : Promise.all([queue.exclusive, ...queue.shared]);
    const run = before.then(task);
    queue.exclusive = settled(run);
    queue.shared = [];
    return this.#leaving(key, queue, run);
  }

  /** Waits only for tasks that run alone. */
  runShared<T>(key: string, task: () => Promise<T>): Promise<T> {
    const queue = this.#queueOf(key);
    const run = queue.exclusive.then(task);
    queue.shared.push(settled(run));
    return this.#leaving(key, queue, run);
  }

  #queueOf(key: string): KeyQueue {
    const queue = this.#queues.get(key) ?? { exclusive: Promise.resolve(), shared: [], pending: 0 };
    this.#queues.set(key, queue);
    queue.pending += 1;
    return queue;
  }

  async #leaving<T>(key: string, queue: KeyQueue, run: Promise<T>): Promise<T> {
    try {
      return await run;
    } finally {
      queue.pending -= 1;
      if (queue.pending === 0) this.#queues.delete(key);
    }
  }
}

interface KeyQueue {
  /** Ends with the last exclusive task. */
  exclusive: Promise<unknown>;
  /** Shared tasks that came after it. */
  shared: Promise<unknown>[];
  pending: number;
}

async function settled(run: Promise<unknown>): Promise<void> {
  await Promise.allSettled([run]);
}

/** Counts work that has begun and not ended. */
export class PendingWork {
  readonly #tracked = new Set<Promise<unknown>>();
  readonly #idle: (() => void)[] = [];
  #begun = 0;

  get count(): number {
    return this.#begun + this.#tracked.size;
  }

  begin(): void {
    this.#begun += 1;
  }

  end(): void {
    this.#begun -= 1;
    this.#notifyIdle();
  }

  /** Returns its argument; a promise counts until it settles. */
  track<T>(result: T): T {
    if (result instanceof Promise) {
      this.#tracked.add(result);
      const done = (): void => {
        this.#tracked.delete(result);
        this.#notifyIdle();
      };
      result.then(done, done);
    }
    return result;
  }

  /** Resolves when nothing is pending. */
  idle(): Promise<void> {
    return this.count === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  /** Resolves when all promises that are tracked now have settled; later ones are not waited for. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#tracked);
  }

  #notifyIdle(): void {
    if (this.count === 0) for (const resume of this.#idle.splice(0)) resume();
  }
}

/** The result of the work; rejects with the message when it takes longer, and the work continues unobserved. */
export function withTimeout<T>(ms: number, work: Promise<T>, message: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(message)), ms);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Whether something may still be done; only true permits it. */
export type Permission = () => boolean | Promise<boolean>;

/**
 * Acts if it is permitted; otherwise, or without an answer within `ms`, the result is undefined. After a promise it asks
 * once more: a boolean is then an answer of the turn in which it acts.
 */
export function ifPermitted<T>(
  may: Permission | undefined,
  ms: number,
  act: () => T,
): T | undefined | Promise<T | undefined> {
  const answer = (): Promise<boolean> | boolean => {
    try {
      const given = may?.() ?? true;
      if (typeof given === 'boolean') return given;
      return withTimeout(ms, given, 'no answer').catch(() => false);
    } catch {
      return false;
    }
  };
  const first = answer();
  if (typeof first === 'boolean') return first ? act() : undefined;
  return first.then(async (isPermitted) => {
    if (!isPermitted) return undefined;
    const second = answer();
    return (typeof second === 'boolean' ? second : await second) ? act() : undefined;
  });
}

/**
 * Aborts after this many milliseconds, or with one of the signals. Unlike `AbortSignal.any`, whose parts may be
 * collected so that it never aborts: here the timer and the signals hold the result.
 */
export function abortAfter(ms: number, ...signals: readonly AbortSignal[]): AbortSignal {
  const controller = new AbortController();
  const timer = setTimeout(() => end(new DOMException('It took too long.', 'TimeoutError')), ms).unref();
  const pass = ({ target }: Event): void => end((target as AbortSignal).reason);

  function end(reason: unknown): void {
    clearTimeout(timer);
    for (const signal of signals) signal.removeEventListener('abort', pass);
    controller.abort(reason);
  }

  const aborted = signals.find((signal) => signal.aborted);
  if (aborted === undefined) for (const signal of signals) signal.addEventListener('abort', pass);
  else end(aborted.reason);
  return controller.signal;
}

/** Waits until all tasks have ended, then throws the first failure, so that none continues unobserved. */
export async function allSettledOrThrow(tasks: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(tasks)) if (result.status === 'rejected') throw result.reason;
}

/** Like `Promise.all(items.map(task))` with at most `width` tasks at once. Rejects with the first failure. */
export async function mapBounded<T, R>(
  items: readonly T[],
  width: number,
  task: (item: T) => Promise<R>,
): Promise<readonly R[]> {
  const results: R[] = [];
  const queue = items.entries();
  const lane = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await task(item);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
  return results;
}

const sliceMs = 8;

/** For long loops: lets the event loop run every 8 ms. */
export class TimeSlice {
  #began = performance.now();

  /** To await between small pieces of work: a promise when the time is up. */
  yieldIfDue(): Promise<void> | undefined {
    return performance.now() - this.#began < sliceMs ? undefined : this.#yield();
  }

  async #yield(): Promise<void> {
    await nextTurn();
    this.#began = performance.now();
  }
}
