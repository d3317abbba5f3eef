import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock, Timers } from '../../core/clock.js';

/** How far to turn; what is given is added up. */
export interface Span {
  readonly days?: number;
  readonly hours?: number;
  readonly minutes?: number;
  readonly seconds?: number;
  readonly ms?: number;
}

/** A task that runs, with all that it waits for. */
interface Run {
  ended: boolean;
}

interface Waiting {
  readonly dueMs: number;
  readonly task: () => void | Promise<void>;
  /** The task that waits for it. */
  readonly run: Run | undefined;
}

/** How long a task may really take, in milliseconds, before `advance` says which time it stands at. */
const timeoutMs = 10_000;

/**
 * A clock that stands until it is turned. What plugins registered with `every` runs when `advance` comes to its time, in
 * order, and is waited for.
 */
export class FakeClock implements Clock, Timers {
  readonly #startMs: number;
  #passedMs = 0;
  #waiting: readonly Waiting[] = [];
  readonly #runs = new AsyncLocalStorage<Run>();

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
    const one = { dueMs: this.#passedMs + ms, task, run: this.#runs.getStore() };
    this.#waiting = [...this.#waiting, one];
    return () => {
      this.#waiting = this.#waiting.filter((other) => other !== one);
    };
  }

  /**
   * Turns it forward and runs what is due on the way, each at its own time, and waits for it. A task that waits for a later time
   * itself, as for a slow name of `FakeDns`, is left waiting. What a task throws is logged, as live.
   */
  async advance(span: Span): Promise<void> {
    const targetMs = this.#passedMs + millisecondsOf(span);
    const running = new Set<Run>();
    for (let next = this.#nextUntil(targetMs); next !== undefined; next = this.#nextUntil(targetMs)) {
      this.#waiting = this.#waiting.filter((other) => other !== next);
      this.#passedMs = Math.max(this.#passedMs, next.dueMs);
      running.add(this.#start(next));
      await this.#untilAllWait(running);
    }
    this.#passedMs = targetMs;
    await this.#untilAllWait(running);
  }

  #start({ task, run: waiting }: Waiting): Run {
    const run = waiting === undefined || waiting.ended ? { ended: false } : waiting;
    const end = (): void => {
      if (run !== waiting) run.ended = true;
    };
    void this.#runs.run(run, async () => task()).then(end, end);
    return run;
  }

  #nextUntil(targetMs: number): Waiting | undefined {
    const due = this.#waiting.filter(({ dueMs }) => dueMs <= targetMs);
    return due.toSorted((one, other) => one.dueMs - other.dueMs)[0];
  }

  /** Until each has ended or waits for this clock. */
  async #untilAllWait(running: Set<Run>): Promise<void> {
    const began = performance.now();
    for (;;) {
      await turn();
      for (const run of running) if (run.ended) running.delete(run);
      if ([...running].every((run) => this.#waiting.some((one) => one.run === run))) return;
      if (performance.now() - began > timeoutMs) {
        const at = new Date(this.now()).toISOString();
        throw new Error(`FakeClock: what runs at ${at} has not ended within ${timeoutMs / 1000} seconds.`);
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
