import type { Clock } from '../../core/clock.js';
import { isAtMessage, type ClientFailure } from '../../core/smtp/client/failure.js';

/** `open`: nobody calls; `half-open`: the next one who wants to call may try. */
export type BreakerState = 'closed' | 'open' | 'half-open';

export interface BreakerOptions {
  /** Failed calls in a row that open it. */
  readonly failures: number;
  /** How long it stays open, in milliseconds. */
  readonly pauseMs: number;
}

/** Spares those who wait the call to a server that does not answer. */
export class Breaker {
  readonly #options: BreakerOptions;
  readonly #clock: Clock;
  #failed = 0;
  /** Monotonic time of the next try; undefined while it is closed. */
  #until: number | undefined;
  #failure: ClientFailure | undefined;

  constructor(options: BreakerOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  get state(): BreakerState {
    if (this.#until === undefined) return 'closed';
    return this.#clock.monotonic() < this.#until ? 'open' : 'half-open';
  }

  /** What the last call came to, if it failed. */
  get failure(): ClientFailure | undefined {
    return this.#failure;
  }

  /** Milliseconds until it is tried again; 0 when it may be tried now. */
  get waitMs(): number {
    return this.#until === undefined ? 0 : Math.max(0, this.#until - this.#clock.monotonic());
  }

  /** True when the caller may call now: of a breaker that is half open one alone, the others after the next pause. */
  admits(): boolean {
    const { state } = this;
    if (state === 'half-open') this.#until = this.#clock.monotonic() + this.#options.pauseMs;
    return state !== 'open';
  }

  /** A server that hangs at each message may answer everything before it: that says nothing of its messages. */
  succeeded(at: 'envelope' | 'message'): void {
    if (at === 'envelope' && this.#failure !== undefined && isAtMessage(this.#failure)) return;
    this.#failed = 0;
    this.#until = undefined;
    this.#failure = undefined;
  }

  failed(failure: ClientFailure): void {
    this.#failed += 1;
    this.#failure = failure;
    if (this.#failed >= this.#options.failures) this.#until = this.#clock.monotonic() + this.#options.pauseMs;
  }
}
