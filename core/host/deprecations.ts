import type { Log } from '../log/log.js';

/** What this version of the kit still takes and a later one will not, by a name of ours. */
const deprecated = {
  'kit-number': `kit as a whole number; write it as text, with a minor version: kit: '1.0'.`,
} as const;

export type Deprecated = keyof typeof deprecated;

/** Who uses what will go: told in the log once for each plugin, and on its state. */
export class Deprecations {
  readonly #log: Log;
  readonly #used = new Map<string, Set<Deprecated>>();

  constructor(log: Log) {
    this.#log = log;
  }

  note(plugin: string, what: Deprecated): void {
    const used = this.#used.get(plugin) ?? new Set();
    this.#used.set(plugin, used);
    if (used.has(what)) return;
    used.add(what);
    this.#log.warn(
      { plugin, deprecated: what },
      `a plugin uses what a later version will not have: ${deprecated[what]}`,
    );
  }

  /** A sentence each. */
  of(plugin: string): readonly string[] {
    return [...(this.#used.get(plugin) ?? [])].map((what) => deprecated[what]);
  }

  /** Its code is another one now. */
  forget(plugin: string): void {
    this.#used.delete(plugin);
  }
}
