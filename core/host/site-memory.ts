import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { writeFileAtomic } from '../disk/atomic.js';
import { isMissing } from '../disk/fault.js';
import type { Log } from '../log/log.js';
import type { Pipeline } from '../pipeline/pipeline.js';
import { defer } from '../pipeline/verdict.js';
import { startError } from '../problem.js';
import type { FailedPlugin } from './plugin-faults.js';
import { whyRequired, type PluginSet } from './plugin-set.js';

/** File in the data folder. */
const siteMemoryFile = 'site-plugins.json';

const Remembered = z.object({
  name: z.string(),
  /** The element of `sitePlugins` that brought it. */
  from: z.string(),
  replaces: z.boolean(),
  /** Ids of the services that it provided. */
  provides: z.array(z.string()).readonly(),
  /** Whether it decided where mail goes: a delivery target, or a hook that routes. */
  routes: z.boolean(),
});

type RememberedPlugin = z.output<typeof Remembered>;

const Memory = z.array(Remembered);

/** What site plugins were when they last ran: needed while their code cannot be loaded. */
export class SiteMemory {
  readonly #path: string;
  readonly #log: Log;
  #known: readonly RememberedPlugin[];

  /** @param data absolute path of the data folder */
  constructor(data: string, log: Log) {
    this.#path = join(data, siteMemoryFile);
    this.#log = log;
    this.#known = this.#read();
  }

  /** The plugins of an element of `sitePlugins`; empty when none of them ever ran here. */
  of(from: string): readonly RememberedPlugin[] {
    return this.#known.filter((remembered) => remembered.from === from);
  }

  /** Never rejects: what is not remembered makes the server more careful, not less. */
  async keep(plugins: readonly RememberedPlugin[]): Promise<void> {
    if (isDeepStrictEqual(plugins, this.#known)) return;
    this.#known = plugins;
    try {
      await writeFileAtomic(this.#path, `${JSON.stringify(plugins, null, 2)}\n`);
    } catch (error) {
      this.#log.warn({ err: error }, 'the record of site plugins could not be written');
    }
  }

  #read(): readonly RememberedPlugin[] {
    try {
      return Memory.parse(JSON.parse(readFileSync(this.#path, 'utf8')));
    } catch (error) {
      if (!isMissing(error)) this.#log.warn({ err: error, file: this.#path }, 'this file is not valid');
      return [];
    }
  }
}

/**
 * Refuses to start without a site plugin that is required, by its entry or by what is remembered of it.
 *
 * @throws start error
 */
export function refuseStartWithoutRequired(program: PluginSet, memory: SiteMemory): void {
  for (const { entry, name, why } of program.unloaded) {
    const unknown = [{ name, replaces: false, provides: [] }];
    const known = memory.of(entry.from);
    for (const plugin of known.length === 0 ? unknown : known) {
      const reason = whyRequired({ ...plugin, required: entry.required }, program);
      if (reason !== undefined) {
        throw startError(`${why.replace(/\.$/, '')}. The server does not start without it: ${reason}.`);
      }
    }
  }
}

/**
 * Hooks in place of site plugins that were left out and routed mail: recipients are deferred, neither refused
 * permanently nor delivered elsewhere.
 */
export class FallbackHooks {
  readonly #pipeline: Pipeline;
  readonly #memory: SiteMemory;
  #undo: readonly (() => void)[] = [];

  constructor(pipeline: Pipeline, memory: SiteMemory) {
    this.#pipeline = pipeline;
    this.#memory = memory;
  }

  /** @param running names of the running plugins */
  update(failed: readonly FailedPlugin[], running: readonly string[]): void {
    for (const undo of this.#undo) undo();
    const enforcing = failed.filter(({ entry }) => entry.mode === 'enforce');
    this.#undo = enforcing.flatMap((plugin) => this.#standIn(plugin, running));
  }

  #standIn({ name, entry }: FailedPlugin, running: readonly string[]): readonly (() => void)[] {
    // Not the plugin's name: no other hook can be ordered relative to it.
    const label = `${name} (left out)`;
    const remembered = this.#memory.of(entry.from);
    const known = remembered.filter((one) => !this.#pipeline.isShadowed(one.name));
    // Plugins in shadow mode need no fallback.
    if (this.#pipeline.isShadowed(name) || known.length < Math.min(1, remembered.length)) return [];
    const answer = () => defer(451, '4.3.0', 'A part of this server is out of order, try again later');
    // One that never ran here may route: defer recipients that no other plugin accepts.
    if (known.length === 0) return [this.#pipeline.on(label, 'rcptTo', { order: 'route', after: running }, answer)];
    const itself = known.filter((one) => one.name === name);
    const routes = (itself.length > 0 ? itself : known).some((one) => one.routes);
    return routes ? [this.#pipeline.on(label, 'rcptTo', { order: 'content' }, answer)] : [];
  }
}
