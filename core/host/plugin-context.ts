import { folderOwners } from '../contracts/data-folders.js';
import { join } from 'node:path';
import { type Clock, repeat, type Timers } from '../clock.js';
import { makeFolder, requireFolder } from '../disk/folder.js';
import type { HttpShell } from '../http/shell/shell.js';
import type { Log } from '../log/log.js';
import type { Metrics } from '../metrics/metrics.js';
import type { Hook, HookOptions } from '../pipeline/hook.js';
import type { Stage } from '../pipeline/verdict.js';
import type { Pipeline } from '../pipeline/pipeline.js';
import type { PluginContext } from '../plugin.js';
import { markOf, runAs } from '../watchdog/running-code.js';
import type { HealthRegistry } from './health.js';
import type { ContextFactory } from './running-plugin.js';
import { siteUrlOf } from './site-plugins.js';

/** Parts of the server that a plugin reaches through its context. */
interface ContextDeps {
  readonly data: string;
  readonly log: Log;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly metrics: Metrics;
  readonly health: HealthRegistry;
  readonly pipeline: Pipeline;
  readonly http: HttpShell;
}

export function contextFactory(parts: ContextDeps): ContextFactory {
  const { clock, timers, pipeline, http, health } = parts;
  const folders = new PluginFolders(parts.data);
  return (plugin, registrations, onClose) => {
    const { name, views, assets } = plugin;
    const log = parts.log.child({ plugin: name });
    const metrics = parts.metrics.scope(name);
    const side = siteUrlOf(plugin) === undefined ? 'server' : 'site';
    onClose(() => metrics.undo());
    if (views !== undefined) registrations.add(http.views(name, views));
    if (assets !== undefined) registrations.add(http.assets(name, assets));

    const marked = (seconds: number, task: () => void | Promise<void>) => {
      if (typeof task !== 'function') throw new TypeError(`every(${seconds}, …): the task is not a function.`);
      const mark = markOf(name, `timer of ${seconds} s`);
      return () => runAs(mark, task);
    };

    function on<S extends Stage>(stage: S, ...rest: readonly [Hook<S>] | readonly [HookOptions, Hook<S>]): void {
      const [options, hook] = rest.length === 1 ? [{}, rest[0]] : rest;
      registrations.add(() => pipeline.on(name, stage, options, hook));
    }

    const context: PluginContext = {
      log,
      clock,
      http: {
        mount: (endpoints) => registrations.add(() => http.mount(name, endpoints)),
        navigate: (link) => registrations.add(() => http.navigate(name, link, side)),
      },
      smtp: {
        on,
        watch: (event, watcher) => registrations.add(() => pipeline.watch(name, event, watcher)),
        tell: (outcome) => pipeline.emitOutcome(name, outcome),
        deliverTo: (target, delivery) => registrations.add(() => pipeline.deliverTo(name, target, delivery)),
      },
      metrics,
      health: { check: (component, check) => registrations.add(() => health.check(name, component, check)) },
      every: (seconds, task) => {
        const run = marked(seconds, task);
        registrations.add(() => repeat(seconds, run, { timers, log }));
      },
      folder: (folder) => folders.open(name, folder, onClose),
      onClose,
    };
    return context;
  };
}

interface Claim {
  readonly plugin: string;
  /** Two while a plugin is replaced: the old one and its successor. */
  holders: number;
}

/** Folders of plugins in the data folder; each has one owner. */
export class PluginFolders {
  readonly #data: string;
  readonly #claims = new Map<string, Claim>();

  /** @param data absolute path */
  constructor(data: string) {
    this.#data = data;
  }

  /**
   * Creates the folder if missing and reserves it for the plugin until `release` is called.
   *
   * @param name one name, or several joined by `/`; the first one is reserved
   * @throws Error for an invalid name, or for a folder of another owner
   */
  async open(plugin: string, name: string, onClose: (release: () => void) => void): Promise<string> {
    const parts = typeof name === 'string' ? name.split('/') : [];
    const [first = ''] = parts;
    if (first === '' || !parts.every((part) => /^[A-Za-z0-9][\w.-]*$/.test(part))) {
      throw new Error(
        `folder(${JSON.stringify(name)}): letters, digits, "-", "_" and "." make a name, such as "${plugin}"`,
      );
    }
    const owner =
      this.#claims.get(first)?.plugin ?? (Object.hasOwn(folderOwners, first) ? folderOwners[first] : undefined);
    if (owner !== undefined && owner !== plugin) {
      throw new Error(
        `folder("${name}"): ${first} in the data folder belongs to ${owner}; choose another, such as "${plugin}"`,
      );
    }
    onClose(this.#claim(plugin, first));
    const path = join(this.#data, name);
    await requireFolder(join(this.#data, first));
    await makeFolder(path);
    await requireFolder(path);
    return path;
  }

  #claim(plugin: string, first: string): () => void {
    const claim = this.#claims.get(first) ?? { plugin, holders: 0 };
    claim.holders += 1;
    this.#claims.set(first, claim);
    return () => {
      claim.holders -= 1;
      if (claim.holders === 0 && this.#claims.get(first) === claim) this.#claims.delete(first);
    };
  }
}
