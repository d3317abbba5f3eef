/** Whoever changes a draft does it alone; the others wait in the order in which they came. */
export class DraftTurns {
  readonly #last = new Map<string, Promise<void>>();

  async take<T>(draft: string, task: () => Promise<T>): Promise<T> {
    const run = (this.#last.get(draft) ?? Promise.resolve()).then(task);
    const done = run.then(
      () => undefined,
      () => undefined,
    );
    this.#last.set(draft, done);
    try {
      return await run;
    } finally {
      if (this.#last.get(draft) === done) this.#last.delete(draft);
    }
  }
}
