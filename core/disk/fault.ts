import { isProblem, problem, type Problem } from '../problem.js';

/** EDQUOT of Linux, which Node reports without a name: `Unknown system error -122`. */
const overQuota = -122;

/** The code of a system error, such as `ENOSPC`; undefined for other values. */
export function faultCode(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, errno } = error as NodeJS.ErrnoException;
  if (errno === overQuota) return 'EDQUOT';
  return typeof code === 'string' ? code : undefined;
}

const shortages = new Set<string | undefined>(['EMFILE', 'ENFILE', 'ENOMEM']);

/** True when descriptors or memory ran out, which says nothing about the file. */
export function isShortage(error: unknown): boolean {
  return shortages.has(faultCode(error));
}

export function isMissing(error: unknown): boolean {
  return faultCode(error) === 'ENOENT';
}

/** The result; undefined when there is no such file. */
export async function unlessMissing<T>(look: Promise<T>): Promise<T | undefined> {
  try {
    return await look;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

const unwritable = new Set<string | undefined>(['ENOSPC', 'EDQUOT', 'EROFS']);

/** True when the disk is full or read-only, as a system error or a problem: existing files can be read. */
export function isUnwritable(error: unknown): boolean {
  return unwritable.has(faultCode(error)) || (isProblem(error) && error.problem === 'storage-full');
}

export function isNameTaken(error: unknown): boolean {
  return faultCode(error) === 'EEXIST';
}

/**
 * A storage fault as a problem for the peer: always temporary, and without a path. A problem stays as it is; an unknown
 * error becomes `internal` (451 4.3.0), never a permanent failure.
 */
export function asStorageProblem(error: unknown): Problem {
  if (isProblem(error)) return error;
  if (isShortage(error)) {
    return problem('unavailable', { detail: 'Too much is going on; try again later.', cause: error });
  }
  switch (faultCode(error) ?? '') {
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EROFS':
      return problem('storage-full', { detail: 'There is no room to store it now; try again later.', cause: error });
    default:
      return problem('internal', { detail: 'It could not be stored now; try again later.', cause: error });
  }
}

/** A sentence that says why a folder cannot be read. */
export function unreadableFolder(folder: string, cause: unknown): string {
  const code = faultCode(cause);
  if (code !== 'EMFILE' && code !== 'ENFILE') return `${folder} is not a folder that can be read.`;
  return `${folder} cannot be read, for too many files are open (${code}): raise the limit of open files (ulimit -n).`;
}
