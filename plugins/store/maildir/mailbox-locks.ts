interface Turns {
  /** Ends when the last one that wants the mailbox for itself has ended. */
  alone: Promise<void>;
  /** Those that came behind it and share the mailbox. */
  together: Promise<void>[];
  waiting: number;
}

/**
 * Who may change a mailbox now. Changes of messages go together; a change of folders waits for those before it and has the
 * mailbox for itself. Deliveries ask nobody. Other programs know nothing of it.
 */
export class MailboxLocks {
  readonly #turns = new Map<string, Turns>();

  together<T>(mailbox: string, task: () => Promise<T>): Promise<T> {
    const turns = this.#turnsOf(mailbox);
    const before = turns.alone;
    const run = before.then(task);
    turns.together.push(settled(run));
    return this.#leaving(mailbox, turns, run);
  }

  alone<T>(mailbox: string, task: () => Promise<T>): Promise<T> {
    const turns = this.#turnsOf(mailbox);
    const before = Promise.all([turns.alone, ...turns.together]);
    const run = before.then(task);
    turns.alone = settled(run);
    turns.together = [];
    return this.#leaving(mailbox, turns, run);
  }

  #turnsOf(mailbox: string): Turns {
    const turns = this.#turns.get(mailbox) ?? { alone: Promise.resolve(), together: [], waiting: 0 };
    this.#turns.set(mailbox, turns);
    turns.waiting += 1;
    return turns;
  }

  async #leaving<T>(mailbox: string, turns: Turns, run: Promise<T>): Promise<T> {
    try {
      return await run;
    } finally {
      turns.waiting -= 1;
      if (turns.waiting === 0) this.#turns.delete(mailbox);
    }
  }
}

function settled(run: Promise<unknown>): Promise<void> {
  return run.then(
    () => undefined,
    () => undefined,
  );
}
