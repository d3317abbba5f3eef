import type { Clock } from '../clock.js';
import type { Timers } from '../timers.js';

/** How far to turn; what is given is added up. */
export interface Span {
  readonly days?: number;
  readonly hours?: number;
  readonly minutes?: number;
  readonly seconds?: number;
  readonly ms?: number;
}

interface Waiting {
  readonly dueMs: number;
  readonly task: () => void | Promise<void>;
}

/** How long a task may really take, in milliseconds, before `advance` says which time it stands at. */
const patienceMs = 10_000;

/**
 * A clock that stands until it is turned. What plugins registered with `every` runs when `advance` comes to its time, in
 * order, and is waited for.
 */
export class FakeClock implements Clock, Timers {
  readonly #startMs: number;
  #passedMs = 0;
  #waiting: readonly Waiting[] = [];

  /** @param start where it stands at first; the same day in each run if absent */
  constructor(start: string | number | Date = '2030-01-01T12:00:00Z') {
    this.#startMs = new Date(start).getTime();
    if (Number.isNaN(this.#startMs)) throw new TypeError(`FakeClock: ${String(start)} is no time.`);
  }

  /** Milliseconds since 1970-01-01 UTC. */
  now(): number {
    return this.#startMs + this.#passedMs;
  }

  /** Milliseconds since it was made. */
  monotonic(): number {
    return this.#passedMs;
  }

  after(ms: number, task: Waiting['task']): () => void {
    const one = { dueMs: this.#passedMs + ms, task };
    this.#waiting = [...this.#waiting, one];
    return () => {
      this.#waiting = this.#waiting.filter((other) => other !== one);
    };
  }

  /**
   * Turns it forward and runs what is due on the way, each at its own time. A task that waits for a later time itself, as for
   * a slow name of `FakeDns`, is left waiting; a task that fails is logged, as live.
   */
  async advance(span: Span): Promise<void> {
    const targetMs = this.#passedMs + millisecondsOf(span);
    const running = new Set<Promise<void>>();
    for (let next = this.#nextUntil(targetMs); next !== undefined; next = this.#nextUntil(targetMs)) {
      this.#waiting = this.#waiting.filter((other) => other !== next);
      this.#passedMs = Math.max(this.#passedMs, next.dueMs);
      const task = Promise.resolve(next.task());
      running.add(task);
      void task.finally(() => running.delete(task)).catch(() => undefined);
      await this.#settled(running);
    }
    this.#passedMs = targetMs;
    await this.#settled(running);
  }

  #nextUntil(targetMs: number): Waiting | undefined {
    const due = this.#waiting.filter(({ dueMs }) => dueMs <= targetMs);
    return due.toSorted((one, other) => one.dueMs - other.dueMs)[0];
  }

  /** Until all have ended, or what still runs waits for this clock. */
  async #settled(running: ReadonlySet<Promise<void>>): Promise<void> {
    const before = this.#waiting.length;
    const began = performance.now();
    await turn();
    while (running.size > 0 && this.#waiting.length <= before) {
      await turn();
      if (performance.now() - began > patienceMs) {
        const at = new Date(this.now()).toISOString();
        throw new Error(`FakeClock: what runs at ${at} has not ended within ${patienceMs / 1000} seconds.`);
      }
    }
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function millisecondsOf({ days = 0, hours = 0, minutes = 0, seconds = 0, ms = 0 }: Span): number {
  const sum = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + ms;
  if (!(sum >= 0)) throw new RangeError('FakeClock: a clock is turned forward only: advance({ seconds: 30 }).');
  return sum;
}
