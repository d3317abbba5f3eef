import type { DestinationSchedule } from './destination-schedule.js';

/** Leftovers that may lie in front before they are cleared away. */
const patience = 64;

/** Destinations of one site with somebody who is due; they take turns. */
export class SiteRow {
  readonly site: string;
  /** When it was last seen to whether all of them still belong here. */
  lookedAt = 0;
  #destinations: DestinationSchedule[] = [];
  /** Those in front of it are gone. */
  #head = 0;

  constructor(site: string) {
    this.site = site;
  }

  get size(): number {
    return this.#destinations.length - this.#head;
  }

  /** Behind all others. */
  add(destination: DestinationSchedule): void {
    this.#destinations.push(destination);
  }

  /** Takes out the one whose turn it is. */
  take(): DestinationSchedule | undefined {
    const first = this.#destinations[this.#head];
    if (first === undefined) return undefined;
    this.#head += 1;
    if (this.#head >= patience && this.#head * 2 >= this.#destinations.length) {
      this.#destinations = this.#destinations.slice(this.#head);
      this.#head = 0;
    }
    return first;
  }

  *[Symbol.iterator](): Generator<DestinationSchedule> {
    for (let at = this.#head; at < this.#destinations.length; at += 1) {
      const one = this.#destinations[at];
      if (one !== undefined) yield one;
    }
  }
}
