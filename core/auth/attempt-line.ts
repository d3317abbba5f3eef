import type { AttemptLimiter } from './rate.js';

/**
 * Lets no more attempts of a key go on at once than may fail: each counts as a failure until its end. Those beyond it stand
 * in line, so that many right ones at once all pass, and of many wrong ones no more are made than the limiter allows.
 */
export class AttemptLine {
  readonly #limiter: () => Pick<AttemptLimiter, 'retryAfter'>;
  readonly #places = new Map<string, Places>();

  /** @param limiter the one in force */
  constructor(limiter: () => Pick<AttemptLimiter, 'retryAfter'>) {
    this.#limiter = limiter;
  }

  /** The outcome of the attempt, which records its own failure; undefined when the key has to wait, and nothing was done. */
  async make<T>(key: string, attempt: () => Promise<T>): Promise<T | undefined> {
    while (!this.#hasPlace(key)) await this.#change(key);
    if (this.#limiter().retryAfter(key) > 0) return undefined;
    this.#placesOf(key).taken += 1;
    try {
      return await attempt();
    } finally {
      this.#leave(key);
    }
  }

  /** Also when the key has to wait for longer: then it need not stand in line. */
  #hasPlace(key: string): boolean {
    const taken = this.#places.get(key)?.taken ?? 0;
    const limiter = this.#limiter();
    return taken === 0 || limiter.retryAfter(key) > 0 || limiter.retryAfter(key, taken) === 0;
  }

  /** Resolves when an attempt of the key has ended. */
  #change(key: string): Promise<void> {
    return new Promise((resolve) => {
      this.#placesOf(key).waiting.push(resolve);
    });
  }

  #leave(key: string): void {
    const places = this.#placesOf(key);
    places.taken -= 1;
    const woken = places.waiting;
    places.waiting = [];
    if (places.taken === 0) this.#places.delete(key);
    for (const wake of woken) wake();
  }

  #placesOf(key: string): Places {
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    const places: Places = { taken: 0, waiting: [] };
    this.#places.set(key, places);
    return places;
  }
}

interface Places {
  taken: number;
  waiting: (() => void)[];
}
