import { lstat, readdir, readFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { isMissing } from '../../core/disk/fault.js';
import type { Placement } from '../../core/disk/spool.js';
import { readMessageName } from './message-name.js';

/** The messages of a mailbox, in all its folders. */
interface Inventory {
  /** Paths by unique name. */
  readonly byId: ReadonlyMap<string, string>;
  readonly bySize: ReadonlyMap<number, readonly string[]>;
}

/**
 * Finds messages in any folder of the mailbox into which they were delivered, for a reader may have moved them or set
 * flags: by their unique names, and by their bytes where a move has given them another name. What a mailbox holds is
 * read once, so it is for the time before mail comes in.
 */
export function placedMessageFinder(
  root: string,
): (placement: Placement, content: Buffer) => Promise<string | undefined> {
  const known = new Map<string, Promise<Inventory>>();
  return async ({ folder, name }, content) => {
    const path = join(folder, name);
    if (await isFile(path)) return path;
    const [domain, user] = relative(root, folder).split(sep);
    if (domain === undefined || user === undefined || domain === '..') return undefined;
    const mailbox = join(root, domain, user);
    const reading = known.get(mailbox) ?? readMessages(mailbox);
    known.set(mailbox, reading);
    const { byId, bySize } = await reading;
    return byId.get(readMessageName(name).id) ?? (await sameBytes(bySize.get(content.length) ?? [], content));
  };
}

/** Two messages that we received are never alike: each carries its own trace fields. */
async function sameBytes(paths: readonly string[], content: Buffer): Promise<string | undefined> {
  for (const path of paths) if (await holds(path, content)) return path;
  return undefined;
}

async function holds(path: string, content: Buffer): Promise<boolean> {
  try {
    return (await readFile(path)).equals(content);
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}

async function readMessages(mailbox: string): Promise<Inventory> {
  const byId = new Map<string, string>();
  const bySize = new Map<number, string[]>();
  const folders = ['', ...(await namesIn(mailbox)).filter((name) => name.startsWith('.'))];
  for (const folder of folders) {
    for (const part of ['new', 'cur']) {
      const path = join(mailbox, folder, part);
      for (const name of await namesIn(path)) {
        const { id, size } = readMessageName(name);
        byId.set(id, join(path, name));
        if (size !== undefined) bySize.set(size, [...(bySize.get(size) ?? []), join(path, name)]);
      }
    }
  }
  return { byId, bySize };
}

/** Empty for what is no folder; symbolic links are not followed. */
async function namesIn(path: string): Promise<readonly string[]> {
  try {
    return (await lstat(path)).isDirectory() ? await readdir(path) : [];
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await lstat(path)).isFile();
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
