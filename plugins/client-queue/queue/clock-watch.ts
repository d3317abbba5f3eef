import type { Clock } from '../../../core/clock.js';

/** Minimum difference from the monotonic clock that counts as a jump. */
export const jumpMs = 60_000;
/** The clock is trusted after it has been steady for this time. */
const steadyAfterMs = 3_600_000;

/** Detects jumps of the system clock. */
export class ClockWatch {
  readonly #clock: Clock;
  #offset: number;
  #steadySince: number;
  #hasJumped = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#offset = clock.now() - clock.monotonic();
    this.#steadySince = clock.monotonic();
  }

  /** Milliseconds that the clock has jumped since the last call, ahead or back; 0 for none. */
  look(): number {
    const offset = this.#clock.now() - this.#clock.monotonic();
    const jump = offset - this.#offset;
    this.#offset = offset;
    if (Math.abs(jump) <= jumpMs) return 0;
    this.#steadySince = this.#clock.monotonic();
    this.#hasJumped = true;
    return jump;
  }

  /** True when the clock had been steady for long enough at the last call. */
  get isSteady(): boolean {
    return this.#clock.monotonic() - this.#steadySince >= steadyAfterMs;
  }

  /** True shortly after a jump: the clock's word on the age of mail is not trusted. */
  get hasJumped(): boolean {
    return this.#hasJumped && !this.isSteady;
  }
}
