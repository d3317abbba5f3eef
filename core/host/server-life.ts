import type { Clock } from '../clock.js';
import type { Lifecycle } from '../contracts/lifecycle.js';
import type { HealthReport } from './health.js';

/** From the start of the plugins to the word to stop. */
export class ServerLife implements Lifecycle {
  readonly started: Promise<void>;
  readonly #stopping = new AbortController();
  readonly #clock: Clock;
  #begin: () => void = () => undefined;
  /** By `clock.monotonic()`. */
  #deadline = Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.started = new Promise((resolve) => (this.#begin = resolve));
  }

  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  begin(): void {
    this.#begin();
  }

  remainingMs(): number {
    return Math.max(0, this.#deadline - this.#clock.monotonic());
  }

  end(graceMs: number): void {
    this.#deadline = this.#clock.monotonic() + graceMs;
    this.#stopping.abort();
  }

  readonly health = (): HealthReport =>
    this.stopping.aborted ? { status: 'down', why: 'The server is stopping.' } : { status: 'up' };
}
