import type { Clock } from '../../../core/clock.js';

/** A clock that differs so much from what the monotonic one says has jumped. */
export const jumpMs = 60_000;
/** The clock is trusted when it has gone steadily for so long. */
const steadyAfterMs = 3_600_000;

/** Sees whether the clock of the wall jumps. */
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

  /** By how many milliseconds it has jumped since it was looked at last, ahead or back; 0 when it has gone as it should. */
  look(): number {
    const offset = this.#clock.now() - this.#clock.monotonic();
    const jump = offset - this.#offset;
    this.#offset = offset;
    if (Math.abs(jump) <= jumpMs) return 0;
    this.#steadySince = this.#clock.monotonic();
    this.#hasJumped = true;
    return jump;
  }

  /** Whether it has gone as it should for long enough, when it was looked at last. */
  get isSteady(): boolean {
    return this.#clock.monotonic() - this.#steadySince >= steadyAfterMs;
  }

  /** Whether it was seen to jump a short while ago, so that what it says of the age of mail is not believed yet. */
  get hasJumped(): boolean {
    return this.#hasJumped && !this.isSteady;
  }
}
