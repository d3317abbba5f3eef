/** Work that goes on at the same time. */
export class UnderWay {
  readonly #works = new Set<Promise<unknown>>();

  get count(): number {
    return this.#works.size;
  }

  async add<T>(work: Promise<T>): Promise<T> {
    this.#works.add(work);
    try {
      return await work;
    } finally {
      this.#works.delete(work);
    }
  }

  /** Resolves when all that goes on now has ended, whatever came of it. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#works);
  }
}
