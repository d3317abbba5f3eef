import type { Dirent } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.js';
import type { HealthReport } from '../contracts/health.js';
import type { Log } from '../log/log.js';
import type { PluginContext } from '../plugin.js';
import { pluralize } from '../text/format.js';
import { faultCode } from '../disk/fault.js';

/** While there are some, health looks again, at most this often. */
const lookEveryMs = 10_000;
/** A look takes at most this fraction of the time. */
const restFactor = 100;
const namedInHealth = 3;
const namedInLog = 100;

interface UnknownEntriesOptions {
  /** Singular and plural: `entry of the mail folder is no mailbox`, `entries of the mail folder are no mailboxes`. */
  readonly what: { readonly one: string; readonly several: string };
  /** Names of unknown entries, relative to the folder that `what` names. */
  readonly find: () => Promise<readonly string[]>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Entries in the server's own folders that it did not create. They are left alone and reported until they are gone. */
export class UnknownEntries {
  readonly #options: UnknownEntriesOptions;
  #found: readonly string[] = [];
  #nextLook = -Infinity;

  constructor(options: UnknownEntriesOptions) {
    this.#options = options;
  }

  /** Never rejects: a folder that cannot be read is logged. */
  async look(): Promise<void> {
    const { what, find, clock, log } = this.#options;
    const began = clock.monotonic();
    this.#nextLook = Infinity;
    try {
      const before = new Set(this.#found);
      this.#found = await find();
      const fresh = this.#found.filter((name) => !before.has(name));
      if (fresh.length > 0)
        log.warn({ entries: fresh.slice(0, namedInLog), count: fresh.length }, `${what.several}; left alone`);
    } catch (error) {
      log.warn({ err: error }, 'a folder could not be searched for unknown entries');
    }
    const now = clock.monotonic();
    this.#nextLook = now + Math.max(lookEveryMs, (now - began) * restFactor);
  }

  /** Reports the last result, and starts a look when one is due. */
  report(): HealthReport {
    const count = this.#found.length;
    if (count === 0) return { status: 'up' };
    const { what, clock } = this.#options;
    if (clock.monotonic() >= this.#nextLook) void this.look();
    const names = this.#found.slice(0, namedInHealth).map((name) => JSON.stringify(name.slice(0, 100)));
    const more = count > namedInHealth ? ` and ${count - namedInHealth} more` : '';
    const found = pluralize(count, `${what.one}, and is`, `${what.several}, and are`);
    return { status: 'degraded', why: `${found} left alone: ${names.join(', ')}${more}.` };
  }
}

/** Further entries of a folder are not inspected. */
const maxInspected = 100_000;
/** Entries read before the event loop continues. */
const bufferSize = 256;
const lookSeconds = 3600;

/** Whether an entry belongs in its folder. */
export type OwnEntry = (entry: Dirent) => boolean;

/** Accepts regular files whose name matches one of these patterns. */
export function filesNamed(...patterns: readonly RegExp[]): OwnEntry {
  return (entry) => entry.isFile() && patterns.some((pattern) => pattern.test(entry.name));
}

/** Folders below the data folder, with the entries that belong there. */
export type OwnFolders = Readonly<Record<string, OwnEntry>>;

/**
 * Unknown entries of these folders, as paths below `data`; links are not followed. Empty for a folder that is missing.
 */
export async function unknownInFolders(data: string, folders: OwnFolders): Promise<readonly string[]> {
  const unknown: string[] = [];
  for (const [folder, isOwn] of Object.entries(folders)) {
    for (const name of await unknownIn(join(data, folder), isOwn)) unknown.push(join(folder, name));
  }
  return unknown;
}

async function unknownIn(folder: string, isOwn: OwnEntry): Promise<readonly string[]> {
  const unknown: string[] = [];
  try {
    let inspected = 0;
    for await (const entry of await opendir(folder, { bufferSize })) {
      if (++inspected > maxInspected) break;
      if (!isOwn(entry)) unknown.push(entry.name);
    }
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR', 'ELOOP'].includes(faultCode(error) ?? '')) throw error;
  }
  return unknown.toSorted();
}

export function unknownEntriesOf(name: string): UnknownEntriesOptions['what'] {
  const place = `of the ${name} folder`;
  return { one: `entry ${place} is unknown`, several: `entries ${place} are unknown` };
}

/**
 * Reports unknown entries in folders of a plugin: to health as `<name> folder`, and to the log. The first look does not
 * delay the start.
 */
export function watchFolder(
  name: string,
  data: string,
  folders: OwnFolders,
  { health, clock, log, every }: Pick<PluginContext, 'health' | 'clock' | 'log' | 'every'>,
): void {
  const what = unknownEntriesOf(name);
  const unknown = new UnknownEntries({ what, find: () => unknownInFolders(data, folders), clock, log });
  health.check(`${name} folder`, () => unknown.report());
  every(lookSeconds, () => unknown.look());
  void unknown.look();
}
