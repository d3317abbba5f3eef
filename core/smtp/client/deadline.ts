import type { Clock } from '../../clock.js';

/**
 * The one timer of a connection. A deadline that is put off leaves the timer as it is, and what is left is waited for when it
 * fires: so steps that take turns all day cost no timers.
 */
export class Deadline {
  readonly #clock: Clock;
  readonly #passed: () => void;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Infinity;
  #stepAt = Infinity;
  #attemptAt = Infinity;

  constructor(clock: Clock, passed: () => void) {
    this.#clock = clock;
    this.#passed = passed;
  }

  /** The present step must be over in so many milliseconds; Infinity for nothing to wait for. */
  step(ms: number): void {
    this.#stepAt = this.#clock.monotonic() + ms;
    this.#arm();
  }

  /** Everything up to the end of the attempt must be over in so many milliseconds. */
  attempt(ms: number): void {
    this.#attemptAt = this.#clock.monotonic() + ms;
    this.#arm();
  }

  cancel(): void {
    this.#stepAt = Infinity;
    this.#attemptAt = Infinity;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#timerAt = Infinity;
  }

  #arm(): void {
    const at = Math.min(this.#stepAt, this.#attemptAt);
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    // The socket keeps the process alive, a deadline need not.
    this.#timer = setTimeout(() => this.#fire(), timerMs(at - this.#clock.monotonic())).unref();
  }

  #fire(): void {
    this.#timer = undefined;
    this.#timerAt = Infinity;
    const at = Math.min(this.#stepAt, this.#attemptAt);
    // Timers may fire a fraction of a millisecond early.
    if (this.#clock.monotonic() + 1 >= at) this.#passed();
    else if (at < Infinity) this.#arm();
  }
}

/** What `setTimeout` takes: a longer time would fire at once. */
export const timerMs = (ms: number): number => Math.min(2 ** 31 - 1, Math.max(0, ms));
