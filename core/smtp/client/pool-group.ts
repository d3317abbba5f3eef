/** Connections that share a limit, whatever servers they lead to; gone with the last of them. */
export interface PoolGroup {
  readonly name: string;
  /** Leased, or being made. */
  busy: number;
  /** Kept, and used by it last. */
  idle: number;
  waiting: number;
}

/** The groups of which a pool knows something. */
export class PoolGroups {
  readonly #groups = new Map<string, PoolGroup>();

  get(name: string): PoolGroup {
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    const group = { name, busy: 0, idle: 0, waiting: 0 };
    this.#groups.set(name, group);
    return group;
  }

  /** To be called when something of it has gone. */
  forget({ name, busy, idle, waiting }: PoolGroup): void {
    if (busy + idle + waiting === 0) this.#groups.delete(name);
  }
}
