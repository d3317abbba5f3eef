import type { FailedPlugin } from './failed-plugin.js';
import type { SiteMemory } from './site-memory.js';
import type { Pipeline } from './smtp/pipeline.js';
import { defer } from './smtp/verdict.js';

/**
 * Hooks in the place of plugins that are left out and had a part in where mail goes: it waits with its senders, and is neither
 * refused for good nor brought elsewhere.
 */
export class StandIns {
  readonly #pipeline: Pipeline;
  readonly #memory: SiteMemory;
  #undo: readonly (() => void)[] = [];

  constructor(pipeline: Pipeline, memory: SiteMemory) {
    this.#pipeline = pipeline;
    this.#memory = memory;
  }

  follow(failed: readonly FailedPlugin[]): void {
    for (const undo of this.#undo) undo();
    this.#undo = failed.filter(({ entry }) => entry.mode === 'enforce').flatMap((plugin) => this.#standIn(plugin));
  }

  #standIn({ name, entry }: FailedPlugin): readonly (() => void)[] {
    const known = this.#memory.of(entry.from);
    const answer = () => defer(451, '4.3.0', 'A part of this server is out of order, try again later');
    // One that never ran here may route: whatever nobody else takes is not refused for good.
    if (known.length === 0) return [this.#pipeline.on(name, 'rcptTo', { order: 'route' }, answer)];
    const itself = known.filter((remembered) => remembered.name === name);
    const routes = (itself.length > 0 ? itself : known).some((remembered) => remembered.routes);
    return routes ? [this.#pipeline.on(name, 'rcptTo', { order: 'content' }, answer)] : [];
  }
}
