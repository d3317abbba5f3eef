import type { Dirent } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { faultCode } from './fault.js';
import { ForeignEntries, type ForeignEntriesInput } from './foreign-entries.js';
import type { PluginContext } from '../plugin.js';

/** Of a folder with more, the others are not looked at. */
const mostLookedAt = 100_000;
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
export async function foreignInFolders(data: string, folders: OwnFolders): Promise<readonly string[]> {
  const foreign: string[] = [];
  for (const [folder, isOwn] of Object.entries(folders)) {
    for (const name of await foreignIn(join(data, folder), isOwn)) foreign.push(join(folder, name));
  }
  return foreign;
}

async function foreignIn(folder: string, isOwn: OwnEntry): Promise<readonly string[]> {
  const foreign: string[] = [];
  try {
    let looked = 0;
    for await (const entry of await opendir(folder, { bufferSize: readAtOnce })) {
      if (++looked > mostLookedAt) break;
      if (!isOwn(entry)) foreign.push(entry.name);
    }
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR', 'ELOOP'].includes(faultCode(error) ?? '')) throw error;
  }
  return foreign.toSorted();
}

/** Of the folder called that. */
export function whatIsForeignIn(name: string): ForeignEntriesInput['what'] {
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
  const what = whatIsForeignIn(name);
  const foreign = new ForeignEntries({ what, find: () => foreignInFolders(data, folders), clock, log });
  health.check(`${name} folder`, () => foreign.report());
  every(lookSeconds, () => foreign.look());
  void foreign.look();
}
