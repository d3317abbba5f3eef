/** Whoever changes one thing does it alone; the others wait in the order in which they came. */
export class Turns {
  readonly #last = new Map<string, Promise<void>>();

  async take<T>(thing: string, task: () => Promise<T>): Promise<T> {
    const run = (this.#last.get(thing) ?? Promise.resolve()).then(task);
    const done = run.then(
      () => undefined,
      () => undefined,
    );
    this.#last.set(thing, done);
    try {
      return await run;
    } finally {
      if (this.#last.get(thing) === done) this.#last.delete(thing);
    }
  }
}
