import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { unreadableFolder } from '../disk/fault.js';
import { startError } from '../problem.js';

export interface AssetFile {
  /** Below the folder, with `/`: `icons/logo.svg`. */
  readonly name: string;
  readonly bytes: Buffer;
}

/** What one folder may hold. */
const maxEntries = 1000;
const maxFileBytes = 4 * 1024 * 1024;
const mostBytes = 32 * 1024 * 1024;

/**
 * Reads every file below the folder. No link is followed, and what begins with a dot is left out: nothing outside of the
 * folder can be reached by it.
 *
 * @param owner whose folder it is, as in `Plugin greylist`
 * @throws start error when it is no absolute folder, or holds more than assets are
 */
export function readAssetFolder(folder: string, owner: string): readonly AssetFile[] {
  const refuse = (sentence: string, cause?: unknown) => startError(`${owner}, assets: ${sentence}`, cause);
  if (!isAbsolute(folder)) throw refuse(`${folder} is not an absolute path; join(import.meta.dirname, 'assets') is.`);
  const files: AssetFile[] = [];
  let entries = 0;
  let bytes = 0;

  function read(below: string): void {
    for (const entry of readdirSync(join(root, below), { withFileTypes: true })) {
      entries += 1;
      if (entries > maxEntries) throw refuse(`${folder} holds more than ${maxEntries} files.`);
      const name = below === '' ? entry.name : `${below}/${entry.name}`;
      if (entry.name.startsWith('.')) continue;
      if (entry.isDirectory()) read(name);
      else if (entry.isFile()) take(name);
    }
  }

  function take(name: string): void {
    const content = readRegularFile(join(root, name));
    if (content === undefined) return;
    if (content === 'large') throw refuse(`${name} is larger than ${maxFileBytes / 1024 ** 2} MiB.`);
    bytes += content.length;
    if (bytes > mostBytes) throw refuse(`${folder} holds more than ${mostBytes / 1024 ** 2} MiB.`);
    files.push({ name, bytes: content });
  }

  const root = realFolder(folder, refuse);
  read('');
  return files;
}

function realFolder(folder: string, refuse: (sentence: string, cause: unknown) => Error): string {
  try {
    const real = realpathSync(folder);
    readdirSync(real);
    return real;
  } catch (cause) {
    throw refuse(unreadableFolder(folder, cause), cause);
  }
}

/** Undefined when a link or something else has taken its place since it was listed. */
function readRegularFile(path: string): Buffer | 'large' | undefined {
  let descriptor;
  try {
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (['ELOOP', 'EMLINK', 'ENOENT', 'ENXIO'].includes(code)) return undefined;
    throw error;
  }
  try {
    const stat = fstatSync(descriptor);
    if (!stat.isFile()) return undefined;
    return stat.size > maxFileBytes ? 'large' : readFileSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
