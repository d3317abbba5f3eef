/** Behind this many the callers wait, so that the list cannot grow without end. */
const patience = 1000;
const parallel = 2;

/** Removes spool entries off the critical path, in order. */
export class Reaper {
  readonly #remove: (path: string) => Promise<void>;
  readonly #paths: string[] = [];
  #waiting: (() => void)[] = [];
  #running = 0;

  /** @param remove never rejects */
  constructor(remove: (path: string) => Promise<void>) {
    this.#remove = remove;
  }

  add(path: string): Promise<void> | undefined {
    this.#paths.push(path);
    if (this.#running < parallel) void this.#run();
    return this.#paths.length < patience ? undefined : this.settled();
  }

  /** Resolves when everything that was added is gone. */
  settled(): Promise<void> {
    if (this.#running === 0) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  async #run(): Promise<void> {
    this.#running += 1;
    for (let path = this.#paths.shift(); path !== undefined; path = this.#paths.shift()) await this.#remove(path);
    this.#running -= 1;
    if (this.#running > 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
