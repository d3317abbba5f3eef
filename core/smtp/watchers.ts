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
  if (watchers.length === 0) return;
  later(() => {
    for (const { plugin, watcher } of watchers) {
      const failed = (error: unknown): void => log.error({ plugin, event, err: error }, 'a watcher failed');
      try {
        // A watcher may be an async function all the same.
        const result: unknown = watcher(data);
        if (result instanceof Promise) result.catch(failed);
      } catch (error) {
        failed(error);
      }
    }
  });
}

/** What is to be told in the next turn of the event loop; many events share it. */
let tasks: (() => void)[] = [];

function later(task: () => void): void {
  if (tasks.push(task) === 1) setImmediate(tellAll);
}

function tellAll(): void {
  const told = tasks;
  tasks = [];
  for (const task of told) task();
}
