import { setImmediate } from 'node:timers/promises';
import type { Log } from '../log/log.js';
import type { RunningPlugin } from './running-plugin.js';
import { within } from './time-limit.js';

/** How long those that have left are kept for what began with them. */
const mostSettlingMs = 10 * 60_000;
/** How long a plugin may take to release what it holds. */
const mostReleasingMs = 10_000;

export interface SettlingInput {
  readonly log: Log;
  /** Resolves when nothing that began before it was called is under way. */
  readonly settled: () => Promise<void>;
}

/** Plugins that are out of force and may still be asked, by sessions that began with them. */
export class SettlingPlugins {
  readonly #input: SettlingInput;
  readonly #settling = new Set<RunningPlugin>();
  #end: () => void = () => undefined;
  readonly #ended = new Promise<void>((resolve) => (this.#end = resolve));

  constructor(input: SettlingInput) {
    this.#input = input;
  }

  /** Closes them behind all that began with them. */
  async letGo(leaving: readonly RunningPlugin[]): Promise<void> {
    if (leaving.length === 0) return;
    for (const running of leaving) this.#settling.add(running);
    try {
      const idle = Promise.race([this.#idle(leaving), this.#ended]);
      await within(mostSettlingMs, idle, 'something that began with them still runs');
    } catch (error) {
      const plugins = leaving.map(({ plugin }) => plugin.name);
      this.#input.log.warn({ plugins, err: error }, 'plugins that were replaced are closed all the same');
    }
    for (const running of leaving.toReversed()) {
      await this.discard(running);
      this.#settling.delete(running);
    }
  }

  /** Nobody waits for ever for a plugin of the site to let go. */
  async discard(running: RunningPlugin): Promise<void> {
    try {
      await within(mostReleasingMs, running.stop(), 'it has not released what it holds');
    } catch (error) {
      this.#input.log.error({ plugin: running.plugin.name, err: error }, 'a plugin does not come to its end');
    }
  }

  /** The server ends: nobody will ask them any more. */
  async stop(): Promise<void> {
    this.#end();
    for (const running of [...this.#settling].toReversed()) await this.discard(running);
  }

  async #idle(leaving: readonly RunningPlugin[]): Promise<void> {
    await this.#input.settled();
    for (const running of leaving) await running.idle();
    // Watchers are told a turn later.
    await setImmediate();
  }
}
