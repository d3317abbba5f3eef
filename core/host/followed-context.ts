import { heldBy } from '../http/endpoint-hold.js';
import { asProblem } from '../http/failure.js';
import type { InFlight } from './in-flight.js';
import type { PluginContext } from '../plugin.js';
import { classOf } from '../problem.js';
import type { Hook, HookOptions, Stage } from '../pipeline/hook.js';

/** Who wants to know how a plugin does. */
export interface PluginFollower {
  readonly inFlight: InFlight;
  /** It keeps files of its own. */
  ownsFiles(): void;
  failed(where: string, error: unknown): void;
}

/** The same context; what the plugin's own functions do is followed: what is under way, and what they throw. */
export function followedContext(context: PluginContext, follower: PluginFollower): PluginContext {
  const { http, smtp } = context;
  const { inFlight } = follower;

  /** What is no function is for others to refuse. */
  function follow<A extends readonly unknown[], R>(
    where: string,
    act: (...given: A) => R,
    counts: (error: unknown) => boolean = () => true,
  ): (...given: A) => R {
    if (typeof act !== 'function') return act;
    const failed = (error: unknown): void => {
      if (counts(error)) follower.failed(where, error);
    };
    return (...given) => {
      try {
        const result = inFlight.track(act(...given));
        if (result instanceof Promise) result.catch(failed);
        return result;
      } catch (error) {
        failed(error);
        throw error;
      }
    };
  }

  return {
    ...context,
    http: {
      ...http,
      mount: (endpoints) =>
        http.mount(
          endpoints.map((endpoint) => {
            const { method, path, handle } = endpoint;
            return heldBy({ ...endpoint, handle: follow(`${method} ${path}`, handle, isOurFault) }, () =>
              inFlight.hold(),
            );
          }),
        ),
    },
    smtp: {
      ...smtp,
      on: followedHooks(smtp, inFlight),
      watch: (event, watcher) => smtp.watch(event, follow(`watcher ${event}`, watcher)),
    },
    metrics: {
      ...context.metrics,
      gauge: (name, help, labels, collect) =>
        context.metrics.gauge(name, help, labels, collect && follow(`metric ${name}`, collect)),
    },
    health: {
      check: (component, check) => context.health.check(component, follow(`health check ${component}`, check)),
    },
    every: (seconds, task) => context.every(seconds, follow('timer', task)),
    folder: (name) => {
      follower.ownsFiles();
      return context.folder(name);
    },
  };
}

/** What a peer is told with 4xx is his own doing. */
const isOurFault = (error: unknown): boolean => classOf(asProblem(error)).http >= 500;

/** Hooks that answer later are under way until then. What is no function is for the pipeline to refuse. */
function followedHooks(smtp: PluginContext['smtp'], inFlight: InFlight): PluginContext['smtp']['on'] {
  const followed = <S extends Stage>(hook: Hook<S>): Hook<S> =>
    typeof hook === 'function' ? (input) => inFlight.track(hook(input)) : hook;
  function register<S extends Stage>(stage: S, ...rest: readonly [Hook<S>] | readonly [HookOptions, Hook<S>]): void {
    if (rest.length === 1) smtp.on(stage, followed(rest[0]));
    else smtp.on(stage, rest[0], followed(rest[1]));
  }
  return register;
}
