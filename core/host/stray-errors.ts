import type { PluginHost } from './boot.js';
import type { FaultSink } from './running-plugin.js';
import type { Log } from '../log/log.js';
import { framesOf, isOurCode } from './error-place.js';
import { sitePlaceOf, sitePlaces } from './site-places.js';

/** What nobody caught. */
export interface StrayError {
  readonly error: unknown;
  readonly origin: StrayOrigin;
  /** The element of `sitePlugins` whose code it passed; undefined when its stack names none. */
  readonly from: string | undefined;
}

/** As `process` tells it. */
export type StrayOrigin = 'uncaughtException' | 'unhandledRejection';

/** So many are kept before there is somebody to tell. */
const mostKept = 100;

/**
 * Errors that nobody catches: a plugin throws in a callback of its own, or lets go of a promise that rejects. They end a process
 * of Node.js; here they end it when it may have been our own code that they cut short.
 */
export class StrayErrors {
  #tell: ((stray: StrayError) => void) | undefined;
  readonly #kept: StrayError[] = [];

  /** Whether the server goes on. A promise cuts nobody short; nor does what was thrown in a callback that is not ours. */
  take(error: unknown, origin: StrayOrigin): boolean {
    const frames = framesOf(error);
    const isOurs = origin === 'uncaughtException' && isOurCode(frames.at(-1) ?? '');
    if (sitePlaces().size === 0 || isOurs) return false;
    const stray = { error, origin, from: frames.map(sitePlaceOf).find((from) => from !== undefined) };
    if (this.#tell !== undefined) this.#tell(stray);
    else if (this.#kept.length < mostKept) this.#kept.push(stray);
    return true;
  }

  /** From now on they are told, the first of all those that came before. */
  tellTo(tell: (stray: StrayError) => void): void {
    this.#tell = tell;
    for (const stray of this.#kept.splice(0)) tell(stray);
  }
}

export interface BlameInput {
  readonly host: Pick<PluginHost, 'present'>;
  readonly failed: FaultSink;
  readonly log: Log;
}

/** Counts a stray error against the plugin that it came from, and writes it down. */
export function blame({ error, origin, from }: StrayError, { host, failed, log }: BlameInput): void {
  const { program, failed: missing } = host.present;
  const known = [...program.site].find(([, { entry }]) => entry.from === from)?.[0];
  const plugin = known ?? missing.find(({ entry }) => entry.from === from)?.name;
  const where = origin === 'unhandledRejection' ? 'a promise that nobody awaits' : 'a callback of its own';
  if (plugin !== undefined) failed(plugin, where, error);
  log.error({ plugin, from, where, err: error }, 'nobody caught an error of a plugin of the site; the server goes on');
}
