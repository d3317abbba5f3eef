import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { writeFileAtomic } from '../disk/atomic.js';
import { isMissing } from '../disk/fault.js';
import type { Log } from '../log/log.js';

/** Its name in the data folder. */
export const siteMemoryFile = 'site-plugins.json';

const Remembered = z.object({
  name: z.string(),
  /** The element of `sitePlugins` that brought it. */
  from: z.string(),
  replaces: z.boolean(),
  /** Ids of the services that it provided. */
  provides: z.array(z.string()).readonly(),
  /** Whether it had a part in where mail goes: a delivery target, or a hook that routes. */
  routes: z.boolean(),
});

/** What a plugin of the site was when it last ran. */
export type RememberedPlugin = z.output<typeof Remembered>;

const Memory = z.array(Remembered);

/** Tells what is missing while a plugin of the site cannot be loaded: its code does not say it then. */
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

  /** The plugins that an element of `sitePlugins` brought; empty when none of it ever ran here. */
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
      this.#log.warn({ err: error }, 'what the plugins of the site are could not be written down');
    }
  }

  #read(): readonly RememberedPlugin[] {
    try {
      return Memory.parse(JSON.parse(readFileSync(this.#path, 'utf8')));
    } catch (error) {
      if (!isMissing(error)) this.#log.warn({ err: error, file: this.#path }, 'this file cannot be understood');
      return [];
    }
  }
}
