import type { Clock } from '../../../core/clock.js';
import type { RunningAttempt } from './attempt-result.js';
import { firstConnections, type SitePace } from './site-pace.js';

/** Part of the connections for sites at which nothing got through lately. */
const trialShare = 0.75;
/** Part of the connections for attempts that hang; what is left of the trials is for sites that were not tried yet. */
const hangingShare = 0.5;
/** Sites get several connections for a trial as long as this part of the trials is free. */
const ampleShare = 0.75;
/** Attempts a second by which nothing gets through, while messages wait for sites where they do. */
const fruitlessPerSecond = 50;

/**
 * Divides what sites get that are not proven. A connection is time spent: it goes first to sites that make delivered
 * messages of it. All others share a part of the connections in turns, and those among them whose attempts hang a part
 * of it, so that a site that nobody has tried yet finds a connection. What fails fast costs work in place of
 * time, so that is limited too.
 */
export class Trials {
  readonly #clock: Clock;
  readonly #active = new Set<SitePace>();
  #most = 0;
  #places = 0;
  #left = 0;
  #leftForHanging = 0;
  #granted = 0;
  #used = 0;
  /** Some site that was not tried yet found nothing free. */
  #isShort = false;
  #fruitless: number = fruitlessPerSecond;
  #refilledAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#refilledAt = clock.monotonic();
  }

  /** A claim begins. */
  begin(maxConnections: number): void {
    const { trials, hanging, hasProven } = this.#count();
    this.#most = Math.ceil(maxConnections * trialShare);
    this.#places = this.#most - trials;
    this.#granted = 0;
    this.#used = 0;
    const allowed = hasProven ? this.#fruitlessLeft() : Infinity;
    this.#left = Math.min(this.#places, allowed);
    this.#leftForHanging = Math.min(Math.ceil(maxConnections * hangingShare) - hanging, this.#left);
  }

  #count(): { readonly trials: number; readonly hanging: number; readonly hasProven: boolean } {
    let trials = 0;
    let hanging = 0;
    let hasProven = false;
    for (const pace of this.#active) {
      const { busy, standing } = pace;
      if (busy === 0) this.#active.delete(pace);
      const slow = standing === 'hanging' ? busy : pace.overdue.length;
      hanging += slow;
      trials += standing === 'proven' ? slow : busy;
      hasProven ||= standing === 'proven' && busy > slow;
    }
    return { trials, hanging, hasProven };
  }

  #fruitlessLeft(): number {
    const now = this.#clock.monotonic();
    const refilled = this.#fruitless + ((now - this.#refilledAt) * fruitlessPerSecond) / 1000;
    this.#fruitless = Math.min(fruitlessPerSecond, refilled);
    this.#refilledAt = now;
    return Math.floor(this.#fruitless);
  }

  /** What a site may get in this claim at most, before its own limits are looked at: there may be very many. */
  most(pace: SitePace): number {
    const { standing } = pace;
    if (standing === 'proven') return Infinity;
    if (standing === 'hanging') return this.#leftForHanging > 0 && pace.mayTryAgain ? 1 : 0;
    const isAmple = this.#left > this.#most * ampleShare;
    const most = (isAmple ? firstConnections : 1) - pace.busy;
    if (most > 0 && this.#granted >= this.#places) this.#isShort = true;
    return Math.max(0, Math.min(most, this.#left));
  }

  /** A site gets this many in this claim. */
  grant(pace: SitePace, count: number): void {
    const { standing } = pace;
    if (standing === 'proven' || count <= 0) return;
    if (standing === 'hanging') this.#leftForHanging -= count;
    this.#left -= count;
    this.#granted += count;
  }

  /** A lease was fetched for the site. */
  fetched(pace: SitePace): void {
    this.#active.add(pace);
    if (pace.standing !== 'proven') this.#used += 1;
  }

  /** An attempt ended by which nothing got through. */
  failed(pace: SitePace): void {
    if (pace.standing !== 'proven') this.#fruitless -= 1;
  }

  /** Some were denied because others got more than they used: the next claim may find more. */
  get mayGrantMore(): boolean {
    return this.#left <= 0 && this.#used > 0 && this.#used < this.#granted;
  }

  /** Sites that have just begun to hang. */
  beginningToHang(): readonly SitePace[] {
    return [...this.#active].filter((pace) => pace.beginsToHang());
  }

  /**
   * Attempts that hang beyond their part, while others find no connection; the oldest first. More than may be ended are
   * returned, as some cannot be.
   */
  excess(
    maxConnections: number,
    othersWait: boolean,
  ): { readonly count: number; readonly of: readonly RunningAttempt[] } {
    const isWanted = othersWait || this.#isShort;
    this.#isShort = false;
    if (!isWanted) return { count: 0, of: [] };
    const of = [...this.#active].flatMap(({ overdue }) => overdue).sort((one, other) => one.since - other.since);
    return { count: of.length - Math.ceil(maxConnections * hangingShare), of };
  }
}
