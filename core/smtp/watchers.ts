import type { Log } from '../log.js';
import type { WatchedEvent, WatchedEvents, Watcher } from './hook.js';

export interface RegisteredWatcher<E extends WatchedEvent> {
  readonly plugin: string;
  readonly watcher: Watcher<E>;
}

export type WatchersByEvent = { readonly [E in WatchedEvent]: readonly RegisteredWatcher<E>[] };

/** Tells the watchers of an event behind everything that waits now; what they throw or reject is logged. */
export function tell<E extends WatchedEvent>(
  watchers: readonly RegisteredWatcher<E>[],
  event: E,
  data: WatchedEvents[E],
  log: Log,
): void {
  for (const { plugin, watcher } of watchers) {
    const failed = (error: unknown): void => log.error({ plugin, event, err: error }, 'a watcher failed');
    setImmediate(() => {
      try {
        // A watcher may be an async function all the same.
        const result: unknown = watcher(data);
        if (result instanceof Promise) result.catch(failed);
      } catch (error) {
        failed(error);
      }
    });
  }
}
