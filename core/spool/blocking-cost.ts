/** A call that takes longer costs less in a thread, the waking of the thread included. */
const dearMicros = 100;
/** One measurement has so much weight and counts for no more than that: the processor may have been taken away in the middle of it. */
const weight = 1 / 32;
const mostMicros = 250;
/** While blocking is dear, one call in so many blocks all the same, to see whether it still is. */
const trialEvery = 64;

/** What a call that blocks has cost lately: a file system may look long for a free inode where many were removed. */
export class BlockingCost {
  readonly #now: () => number;
  #micros = 0;
  #asked = 0;

  /** @param now milliseconds, with their fractions, from whenever */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** True when a thread should make the next call; asked once for each. */
  isDear(): boolean {
    if (this.#micros < dearMicros) return false;
    this.#asked += 1;
    return this.#asked % trialEvery !== 0;
  }

  /** Makes the call, which is over when it returns. */
  measure<T>(call: () => T): T {
    const began = this.#now();
    try {
      return call();
    } finally {
      const micros = Math.min((this.#now() - began) * 1000, mostMicros);
      this.#micros += (micros - this.#micros) * weight;
    }
  }
}
