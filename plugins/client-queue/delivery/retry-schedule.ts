import { randomInt } from 'node:crypto';

export interface RetrySettings {
  readonly firstSeconds: number;
  readonly factor: number;
  readonly maxSeconds: number;
  /** Share by which a pause varies. */
  readonly jitter: number;
}

/** Minimum attempts before mail expires, whatever its age: a clock may have jumped. */
export const minAttempts = 2;

const steps = 2 ** 20;
/** From -1 to 1. */
const chance = (): number => (randomInt(steps + 1) / steps) * 2 - 1;

/** When mail is retried. */
export class RetrySchedule {
  readonly #settings: RetrySettings;
  readonly #chance: () => number;

  constructor(settings: RetrySettings, chanceOf: () => number = chance) {
    this.#settings = settings;
    this.#chance = chanceOf;
  }

  /**
   * Milliseconds from the end of attempt number `attempts` (from 1) to the next one.
   *
   * @param retryAfter seconds, from the rule that matched the reply
   */
  pause(attempts: number, retryAfter: number | null = null): number {
    const { firstSeconds, factor, maxSeconds, jitter } = this.#settings;
    const grown = firstSeconds * factor ** Math.min(Math.max(0, attempts - 1), 100);
    // A rule's pause that is shorter than the schedule's holds for the first three attempts only.
    const wished = retryAfter === null || (attempts > 3 && grown > retryAfter) ? grown : retryAfter;
    const seconds = Math.min(wished, Math.max(maxSeconds, firstSeconds));
    return Math.max(1, Math.round(seconds * (1 + jitter * this.#chance()) * 1000));
  }

  /** Undefined when the mail expires: it was tried long enough and often enough. */
  next(about: {
    readonly now: number;
    readonly attempts: number;
    readonly expiresAt: number;
    readonly retryAfter?: number | null;
  }): number | undefined {
    const { now, attempts, expiresAt, retryAfter = null } = about;
    const next = now + this.pause(attempts, retryAfter);
    if (now < expiresAt) return Math.min(next, Math.max(expiresAt, now + 1000));
    return attempts >= minAttempts ? undefined : next;
  }
}
