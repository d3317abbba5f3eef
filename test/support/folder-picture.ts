import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * Every entry below a folder: its path, and what it is: `folder`, a link with its target, or a file with its bytes.
 * Links are not followed.
 */
export async function pictureOf(folder: string): Promise<ReadonlyMap<string, string>> {
  const picture = new Map<string, string>();
  const waiting = [''];
  for (let below = waiting.pop(); below !== undefined; below = waiting.pop()) {
    for (const entry of await readdir(join(folder, below), { withFileTypes: true })) {
      const path = join(below, entry.name);
      if (entry.isDirectory()) {
        picture.set(path, 'folder');
        waiting.push(path);
      } else if (entry.isSymbolicLink()) picture.set(path, `link to ${await readlink(join(folder, path))}`);
      else if (!entry.isFile()) picture.set(path, 'something else');
      else picture.set(path, `file ${await readFile(join(folder, path), 'latin1')}`);
    }
  }
  return picture;
}
