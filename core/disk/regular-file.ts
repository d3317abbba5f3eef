import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { FileLayer } from './file-layer.js';

/** A pipe in the place of a file would hold up whoever opens it, for as long as nobody writes into it. */
const readFlags = constants.O_RDONLY | constants.O_NONBLOCK;

function irregular(): Error {
  return Object.assign(new Error('it is not a regular file'), { code: 'EFTYPE' });
}

/** Opens a regular file for reading. Everything else that has its name, a link too, is refused. */
export async function openRegularFile(path: string, files: FileLayer): Promise<number> {
  if (!(await files.lstat(path)).isFile()) throw irregular();
  return files.open(path, readFlags | constants.O_NOFOLLOW);
}

/** The text of a regular file, or of the one that a link leads to. */
export async function readRegularText(path: string): Promise<string> {
  const handle = await open(path, readFlags);
  try {
    if (!(await handle.stat()).isFile()) throw irregular();
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}
