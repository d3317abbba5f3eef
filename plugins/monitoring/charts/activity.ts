import type { Clock } from '../../../core/clock.js';

const DAY_MS = 86_400_000;

/** Sessions of the status strip, and messages for the JSON of `/`; in memory only. */
export interface ActivityFigures {
  readonly sessions: { readonly open: number; readonly total: number };
  readonly messages: {
    /** Accepted since `since`. */
    readonly today: number;
    /** Midnight UTC, or the start of the server if later. */
    readonly since: string;
    readonly total: number;
  };
}

/** Counts sessions and messages since the start, and messages of the current day (UTC). */
export class Activity {
  readonly #clock: Clock;
  readonly #started: number;
  readonly #open = new Set<string>();
  #sessions = 0;
  #messages = 0;
  #day: number;
  #today = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#started = clock.now();
    this.#day = dayOf(this.#started);
  }

  opened(session: string): void {
    this.#open.add(session);
    this.#sessions += 1;
  }

  closed(session: string): void {
    this.#open.delete(session);
  }

  accepted(): void {
    this.#turnDay();
    this.#today += 1;
    this.#messages += 1;
  }

  /** Open sessions. */
  get open(): number {
    return this.#open.size;
  }

  get sessions(): ActivityFigures['sessions'] {
    return { open: this.#open.size, total: this.#sessions };
  }

  figures(): ActivityFigures {
    this.#turnDay();
    const since = Math.max(this.#day * DAY_MS, this.#started);
    return {
      sessions: this.sessions,
      messages: { today: this.#today, since: new Date(since).toISOString(), total: this.#messages },
    };
  }

  #turnDay(): void {
    const day = dayOf(this.#clock.now());
    if (day === this.#day) return;
    this.#day = day;
    this.#today = 0;
  }
}

const dayOf = (time: number): number => Math.floor(time / DAY_MS);
