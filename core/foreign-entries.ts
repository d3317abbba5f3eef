import type { Dirent } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from './clock.js';
import { isMissing } from './disk/fault.js';
import { uniqueIdPattern } from './disk/id.js';
import type { HealthRegistry } from './health-registry.js';
import type { HealthReport } from './health.js';
import type { Log } from './log.js';

/** While there are some, a look at health looks for them again, but not more often than that. */
const lookEveryMs = 10_000;
const namedInHealth = 3;
const namedInLog = 100;

export interface ForeignEntriesInput {
  /** Where they are and what they are not: `entries in the folder of the mailboxes are no mailboxes`. */
  readonly what: string;
  /** Names of what nobody here has made, below the place that `what` names. */
  readonly find: () => Promise<readonly string[]>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Files and folders that are where our own should be, and are none of ours. They are left alone; an operator is told, until
 * they are gone.
 */
export class ForeignEntries {
  readonly #input: ForeignEntriesInput;
  #found: readonly string[] = [];
  #lookedAt = -Infinity;

  constructor(input: ForeignEntriesInput) {
    this.#input = input;
  }

  /** Never rejects: what cannot be looked at is no reason to stop. */
  async look(): Promise<void> {
    const { what, find, clock, log } = this.#input;
    this.#lookedAt = clock.monotonic();
    try {
      const before = new Set(this.#found);
      this.#found = await find();
      const fresh = this.#found.filter((name) => !before.has(name));
      if (fresh.length > 0)
        log.warn({ entries: fresh.slice(0, namedInLog), count: fresh.length }, `${what}; left alone`);
    } catch (error) {
      log.warn({ err: error }, 'a folder could not be searched for foreign files');
    }
  }

  /** Answers from what is known. */
  report(): HealthReport {
    const count = this.#found.length;
    if (count === 0) return { status: 'up' };
    const { what, clock } = this.#input;
    if (clock.monotonic() - this.#lookedAt >= lookEveryMs) void this.look();
    const names = this.#found.slice(0, namedInHealth).map((name) => JSON.stringify(name.slice(0, 100)));
    const more = count > namedInHealth ? ` and ${count - namedInHealth} more` : '';
    return { status: 'degraded', why: `${count} ${what}, and are left alone: ${names.join(', ')}${more}.` };
  }
}

/** What may lie in the data folder itself: documents, the lock, what begins with a dot, and folders of plugins. */
const ownFile = /^(?:\..*|.*\.json|postern\.lock.*)$/;
/** What a test of the disk leaves when it is killed. */
const ownProbe = '.probe-';

export interface DataFolderInput {
  readonly data: string;
  readonly health: HealthRegistry;
  readonly clock: Clock;
  readonly log: Log;
}

/** Watches over the data folder; to be looked at first when the leftovers of a dead process are gone. */
export function watchDataFolder({ data, health, clock, log }: DataFolderInput): ForeignEntries {
  const what = 'entries of the data folder are of nobody here';
  const foreign = new ForeignEntries({ what, find: () => foreignInData(data), clock, log });
  health.check('core', 'data folder', () => foreign.report());
  return foreign;
}

/** Foreign entries of the data folder, `spool`, `uploads` and `drafts`. */
async function foreignInData(data: string): Promise<readonly string[]> {
  const top = (await entriesOf(data)).filter((entry) => !entry.isDirectory() && !ownFile.test(entry.name));
  const inner = await Promise.all(['spool', 'uploads', 'drafts'].map((folder) => foreignIn(data, folder)));
  return [...top.map(({ name }) => name), ...inner.flat()];
}

/** These folders hold nothing but files with names of ours. */
async function foreignIn(data: string, folder: string): Promise<readonly string[]> {
  const foreign = (await entriesOf(join(data, folder))).filter(
    (entry) => !(entry.isFile() && (uniqueIdPattern.test(entry.name) || entry.name.startsWith(ownProbe))),
  );
  return foreign.map(({ name }) => `${folder}/${name}`);
}

async function entriesOf(folder: string): Promise<readonly Dirent[]> {
  try {
    return await readdir(folder, { withFileTypes: true });
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}
