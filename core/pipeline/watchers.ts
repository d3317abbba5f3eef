import type { Log } from '../log/log.js';
import { type Mark, markOf, runAs } from '../watchdog/running-code.js';
import type { WatchedEvent, WatchedEvents, Watcher } from './hook.js';

/** So many promises of one watcher may be unsettled. While there are as many it is told nothing: memory is bounded. */
const mostUnsettled = 1000;

/** Somebody who is told of an event. What it throws, rejects or misses is logged, and is nobody else's trouble. */
export class RegisteredWatcher<E extends WatchedEvent> {
  readonly #plugin: string;
  readonly #event: E;
  readonly #watcher: Watcher<E>;
  readonly #log: Log;
  readonly #mark: Mark;
  #unsettled = 0;
  #missed = 0;

  constructor(plugin: string, event: E, watcher: Watcher<E>, log: Log) {
    this.#plugin = plugin;
    this.#event = event;
    this.#watcher = watcher;
    this.#log = log;
    this.#mark = markOf(plugin, `watcher of ${event}`);
  }

  tell(data: WatchedEvents[E]): void {
    if (this.#unsettled >= mostUnsettled) {
      this.#miss();
      return;
    }
    try {
      // A watcher may be an async function all the same.
      const result: unknown = runAs(this.#mark, () => this.#watcher(data));
      if (result instanceof Promise) void this.#follow(result);
    } catch (error) {
      this.#failed(error);
    }
  }

  async #follow(result: Promise<unknown>): Promise<void> {
    this.#unsettled += 1;
    try {
      await result;
    } catch (error) {
      this.#failed(error);
    }
    this.#unsettled -= 1;
    if (this.#missed > 0 && this.#unsettled <= mostUnsettled / 2) this.#resume();
  }

  #miss(): void {
    this.#missed += 1;
    if (this.#missed > 1) return;
    const about = { plugin: this.#plugin, event: this.#event, unsettled: this.#unsettled };
    this.#log.warn(about, 'a watcher is too slow: it is not told of what happens meanwhile');
  }

  #resume(): void {
    const about = { plugin: this.#plugin, event: this.#event, missed: this.#missed };
    this.#log.warn(about, 'a watcher that was too slow is told again');
    this.#missed = 0;
  }

  #failed(error: unknown): void {
    this.#log.error({ plugin: this.#plugin, event: this.#event, err: error }, 'a watcher failed');
  }
}

export type WatchersByEvent = { readonly [E in WatchedEvent]: readonly RegisteredWatcher<E>[] };

/** Tells the watchers of an event behind everything that waits now. */
export function tell<E extends WatchedEvent>(watchers: readonly RegisteredWatcher<E>[], data: WatchedEvents[E]): void {
  if (watchers.length === 0) return;
  later(() => {
    for (const watcher of watchers) watcher.tell(data);
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
