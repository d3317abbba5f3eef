/** Counts work that has begun and not ended. */
export class InFlight {
  #count = 0;
  #waiting: (() => void)[] = [];

  get count(): number {
    return this.#count;
  }

  begin(): void {
    this.#count += 1;
  }

  end(): void {
    this.#count -= 1;
    if (this.#count > 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resume of waiting) resume();
  }

  /** Begins; what is returned ends it. */
  hold(): () => void {
    this.begin();
    return () => this.end();
  }

  /** Gives back what it is given; a promise counts until it settles. */
  track<T>(result: T): T {
    if (result instanceof Promise) {
      this.begin();
      const done = (): void => this.end();
      result.then(done, done);
    }
    return result;
  }

  /** Resolves when nothing is under way. */
  idle(): Promise<void> {
    return this.#count === 0 ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve));
  }
}
