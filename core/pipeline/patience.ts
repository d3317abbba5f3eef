/** How long somebody waits for a delivery: until he has no more patience. Lighter than an AbortSignal, for each message has one. */
export class Patience {
  readonly #waiting = new Set<() => void>();
  #over = false;

  /** True once nobody waits any more. */
  get over(): boolean {
    return this.#over;
  }

  /** From now on everything that is waited for has taken too long. */
  end(): void {
    this.#over = true;
    for (const stop of this.#waiting) stop();
    this.#waiting.clear();
  }

  /** As the work ends; rejects as soon as patience does, and the work goes on alone. */
  for<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = (): void => reject(new Error('it took too long'));
      if (this.#over) stop();
      this.#waiting.add(stop);
      const done = (): void => void this.#waiting.delete(stop);
      work.then(resolve, reject).then(done, done);
    });
  }
}
