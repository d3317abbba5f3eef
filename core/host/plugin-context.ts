import { type Clock, repeat, type Timers } from '../clock.js';
import type { HealthRegistry } from './health-registry.js';
import type { HttpShell } from '../http/shell.js';
import type { Log } from '../log/log.js';
import type { Metrics } from '../metrics/metrics.js';
import type { PluginContext } from '../plugin.js';
import { PluginFolders } from './plugin-folders.js';
import type { ContextFactory } from './running-plugin.js';
import type { Hook, HookOptions, Stage } from '../pipeline/hook.js';
import type { Pipeline } from '../pipeline/pipeline.js';
import { placeOf } from './site-plugins.js';
import { markOf, runAs } from '../watchdog/running-code.js';

/** The parts of the server that a plugin reaches through its context. */
export interface ContextParts {
  readonly data: string;
  readonly log: Log;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly metrics: Metrics;
  readonly health: HealthRegistry;
  readonly pipeline: Pipeline;
  readonly http: HttpShell;
}

export function contextFactory(parts: ContextParts): ContextFactory {
  const { clock, timers, pipeline, http, health } = parts;
  const folders = new PluginFolders(parts.data);
  return (plugin, registrations, onClose) => {
    const { name, views, assets } = plugin;
    const log = parts.log.child({ plugin: name });
    const metrics = parts.metrics.scope(name);
    const side = placeOf(plugin) === undefined ? 'server' : 'site';
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
        tell: (outcome) => pipeline.tell(name, outcome),
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
