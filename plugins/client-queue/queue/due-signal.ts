import type { Clock } from '../../../core/clock.js';

/** Wakes those who wait for the next recipient that is due. */
export class DueSignal {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  /** What they were told last. */
  #said: number | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  say(due: number | null): number | null {
    this.#said = due;
    return due;
  }

  /** Somebody is due then. */
  scheduled(due: number): void {
    if (this.#said !== null && due >= this.#said && due > this.#clock.now()) return;
    for (const listener of this.#listeners) listener();
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
