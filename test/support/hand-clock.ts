import type { Clock } from '../../core/clock.js';

/** A clock that goes only when it is told to. */
export class HandClock implements Clock {
  #ms = 0;
  readonly #epoch: number;

  constructor(epoch = Date.UTC(2026, 10, 21)) {
    this.#epoch = epoch;
  }

  now(): number {
    return this.#epoch + this.#ms;
  }

  monotonic(): number {
    return this.#ms;
  }

  advance(seconds: number): void {
    this.#ms += seconds * 1000;
  }
}
