import { realpath, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { makeFolder } from '../../../core/disk/folder.js';
import { startError } from '../../../core/problem.js';

/**
 * Makes the folder of the mailboxes and answers its resolved path. Messages come into it by a link, so it must share a
 * file system with the data folder; a start error otherwise.
 */
export async function openRoot(data: string, root: string): Promise<string> {
  const path = resolve(data, root);
  try {
    await makeFolder(path);
  } catch (error) {
    throw startError(
      `Cannot make the folder of the mailboxes, ${path}. Make it, or give this user the right to.`,
      error,
    );
  }
  const [mail, home] = await Promise.all([stat(path), stat(data)]);
  if (!mail.isDirectory()) throw startError(`plugins.store.root: ${path} is not a folder. Name another one.`);
  if (mail.dev !== home.dev) {
    throw startError(
      `plugins.store.root: ${path} and the data folder ${data} are on different file systems. Put both on one, for messages are linked from one to the other.`,
    );
  }
  return realpath(path);
}
