import type { Clock } from '../../../core/clock.js';
import type { DestinationControls } from './destination-controls.js';
import { RateAllowance } from './rate-allowance.js';

/** What single destinations have of their site, and what an operator lets them have. */
export class DestinationShares {
  readonly #controls: Pick<DestinationControls, 'get'>;
  readonly #clock: Clock;
  readonly #busy = new Map<string, number>();
  /** Of those that have a rate. */
  readonly #rates = new Map<string, RateAllowance>();

  constructor(controls: Pick<DestinationControls, 'get'>, clock: Clock) {
    this.#controls = controls;
    this.#clock = clock;
  }

  isSuspended(destination: string): boolean {
    const until = this.#controls.get(destination)?.suspendedUntil ?? null;
    return until !== null && until > this.#clock.now();
  }

  /** How many more messages it may have; `Infinity` where nothing was said of it. */
  room(destination: string): number {
    const control = this.#controls.get(destination);
    if (control === undefined) return Infinity;
    if (this.isSuspended(destination)) return 0;
    const most = control.maxConnections ?? Infinity;
    const room = most - (this.#busy.get(destination) ?? 0);
    return control.ratePerMinute === null
      ? room
      : Math.min(room, this.#rateOf(destination).left(control.ratePerMinute));
  }

  fetched(destination: string): void {
    this.#busy.set(destination, (this.#busy.get(destination) ?? 0) + 1);
    const perMinute = this.#controls.get(destination)?.ratePerMinute ?? null;
    if (perMinute === null) this.#rates.delete(destination);
    else this.#rateOf(destination).take();
  }

  ended(destination: string): void {
    const left = (this.#busy.get(destination) ?? 1) - 1;
    if (left > 0) this.#busy.set(destination, left);
    else this.#busy.delete(destination);
  }

  #rateOf(destination: string): RateAllowance {
    const known = this.#rates.get(destination);
    if (known !== undefined) return known;
    const made = new RateAllowance(this.#clock);
    this.#rates.set(destination, made);
    return made;
  }
}
