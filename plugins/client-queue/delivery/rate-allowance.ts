import type { Clock } from '../../../core/clock.js';

/** How many messages a rate allows: a second's worth may be saved up, so that a pause is not made good by a flood. */
export class RateAllowance {
  readonly #clock: Clock;
  #tokens = 1;
  #refilledAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#refilledAt = clock.monotonic();
  }

  /** Messages that are allowed now. */
  left(perMinute: number): number {
    const now = this.#clock.monotonic();
    const most = Math.max(1, perMinute / 60);
    this.#tokens = Math.min(most, this.#tokens + ((now - this.#refilledAt) * perMinute) / 60_000);
    this.#refilledAt = now;
    return Math.floor(this.#tokens);
  }

  take(): void {
    this.#tokens -= 1;
  }
}
