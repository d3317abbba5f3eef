import type { FailedPlugin } from './failed-plugin.js';
import type { SiteMemory } from './site-memory.js';
import type { Pipeline } from '../pipeline/pipeline.js';
import { defer } from '../pipeline/verdict.js';

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

  /** @param running names of the plugins that run */
  follow(failed: readonly FailedPlugin[], running: readonly string[]): void {
    for (const undo of this.#undo) undo();
    const enforcing = failed.filter(({ entry }) => entry.mode === 'enforce');
    this.#undo = enforcing.flatMap((plugin) => this.#standIn(plugin, running));
  }

  #standIn({ name, entry }: FailedPlugin, running: readonly string[]): readonly (() => void)[] {
    // No other hook can want to be before or after it.
    const label = `${name} (left out)`;
    const remembered = this.#memory.of(entry.from);
    const known = remembered.filter((one) => !this.#pipeline.isShadowed(one.name));
    // What was only looked at need not be stood in for.
    if (this.#pipeline.isShadowed(name) || known.length < Math.min(1, remembered.length)) return [];
    const answer = () => defer(451, '4.3.0', 'A part of this server is out of order, try again later');
    // One that never ran here may route: whatever nobody else takes is not refused for good.
    if (known.length === 0) return [this.#pipeline.on(label, 'rcptTo', { order: 'route', after: running }, answer)];
    const itself = known.filter((one) => one.name === name);
    const routes = (itself.length > 0 ? itself : known).some((one) => one.routes);
    return routes ? [this.#pipeline.on(label, 'rcptTo', { order: 'content' }, answer)] : [];
  }
}
