import { type Clock, systemClock } from '../../core/clock.js';

/** Goes like that of the system, and can be put forward. */
export class ForwardClock implements Clock {
  #ahead = 0;

  now(): number {
    return systemClock.now() + this.#ahead;
  }

  monotonic(): number {
    return systemClock.monotonic() + this.#ahead;
  }

  advance(seconds: number): void {
    this.#ahead += seconds * 1000;
  }
}
