import type { Dirent } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.js';
import type { HealthReport } from '../host/health.js';
import type { Log } from '../log/log.js';
import type { PluginContext } from '../plugin.js';
import { pluralize } from '../text/format.js';
import { faultCode } from './fault.js';

/** While there are some, a look at health looks for them again, but not more often than that. */
const lookEveryMs = 10_000;
/** And a look that takes long is rare: it takes a hundredth of the time at most. */
const restFactor = 100;
const namedInHealth = 3;
const namedInLog = 100;

interface UnknownEntriesOptions {
  /** What one of them is called, and several: `entry of the mail folder is no mailbox`, `entries of the mail folder are no mailboxes`. */
  readonly what: { readonly one: string; readonly several: string };
  /** Names of what nobody here has made, below the place that `what` names. */
  readonly find: () => Promise<readonly string[]>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Files and folders that are where our own should be, and are none of ours. They are left alone; an operator is told, until
 * they are gone.
 */
export class UnknownEntries {
  readonly #input: UnknownEntriesOptions;
  #found: readonly string[] = [];
  #nextLook = -Infinity;

  constructor(input: UnknownEntriesOptions) {
    this.#input = input;
  }

  /** Never rejects: what cannot be looked at is no reason to stop. */
  async look(): Promise<void> {
    const { what, find, clock, log } = this.#input;
    const began = clock.monotonic();
    this.#nextLook = Infinity;
    try {
      const before = new Set(this.#found);
      this.#found = await find();
      const fresh = this.#found.filter((name) => !before.has(name));
      if (fresh.length > 0)
        log.warn({ entries: fresh.slice(0, namedInLog), count: fresh.length }, `${what.several}; left alone`);
    } catch (error) {
      log.warn({ err: error }, 'a folder could not be searched for foreign files');
    }
    const now = clock.monotonic();
    this.#nextLook = now + Math.max(lookEveryMs, (now - began) * restFactor);
  }

  /** Answers from what is known. */
  report(): HealthReport {
    const count = this.#found.length;
    if (count === 0) return { status: 'up' };
    const { what, clock } = this.#input;
    if (clock.monotonic() >= this.#nextLook) void this.look();
    const names = this.#found.slice(0, namedInHealth).map((name) => JSON.stringify(name.slice(0, 100)));
    const more = count > namedInHealth ? ` and ${count - namedInHealth} more` : '';
    const found = pluralize(count, `${what.one}, and is`, `${what.several}, and are`);
    return { status: 'degraded', why: `${found} left alone: ${names.join(', ')}${more}.` };
  }
}

/** Of a folder with more, the others are not looked at. */
const maxLookedAt = 100_000;
/** Entries that are read at once: in between others have their turn. */
const readAtOnce = 256;
const lookSeconds = 3600;

/** Says of an entry whether it is one that its folder is for. */
export type OwnEntry = (entry: Dirent) => boolean;

/** Files, and nothing else, with a name of one of these forms. */
export function filesNamed(...forms: readonly RegExp[]): OwnEntry {
  return (entry) => entry.isFile() && forms.some((form) => form.test(entry.name));
}

/** Folders below the data folder, and what may lie in each. */
export type OwnFolders = Readonly<Record<string, OwnEntry>>;

/** What else lies in these folders: paths below `data`, links not followed. None of a folder that is missing, or is none. */
export async function unknownInFolders(data: string, folders: OwnFolders): Promise<readonly string[]> {
  const foreign: string[] = [];
  for (const [folder, isOwn] of Object.entries(folders)) {
    for (const name of await unknownIn(join(data, folder), isOwn)) foreign.push(join(folder, name));
  }
  return foreign;
}

async function unknownIn(folder: string, isOwn: OwnEntry): Promise<readonly string[]> {
  const foreign: string[] = [];
  try {
    let looked = 0;
    for await (const entry of await opendir(folder, { bufferSize: readAtOnce })) {
      if (++looked > maxLookedAt) break;
      if (!isOwn(entry)) foreign.push(entry.name);
    }
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR', 'ELOOP'].includes(faultCode(error) ?? '')) throw error;
  }
  return foreign.toSorted();
}

/** Of the folder called that. */
export function unknownEntriesOf(name: string): UnknownEntriesOptions['what'] {
  const place = `of the ${name} folder`;
  return { one: `entry ${place} is of nobody here`, several: `entries ${place} are of nobody here` };
}

/**
 * Tells of what is in a plugin's folder of that name, and in those below it that are given, and is not its own: in health as
 * `<name> folder`, and in the log. The first look is made behind the start.
 */
export function watchFolder(
  name: string,
  data: string,
  folders: OwnFolders,
  { health, clock, log, every }: Pick<PluginContext, 'health' | 'clock' | 'log' | 'every'>,
): void {
  const what = unknownEntriesOf(name);
  const foreign = new UnknownEntries({ what, find: () => unknownInFolders(data, folders), clock, log });
  health.check(`${name} folder`, () => foreign.report());
  every(lookSeconds, () => foreign.look());
  void foreign.look();
}
