import { stat } from 'node:fs/promises';
import { startError } from '../problem.js';

/**
 * For what we cannot do without, and would neither remove nor move away.
 * @throws start error when something else has the name that a folder is to have; a link counts as what it leads to
 */
export async function refuseFile(path: string, what = 'Move it away; the next start makes the folder.'): Promise<void> {
  const entry = await stat(path).catch(() => undefined);
  if (entry === undefined || entry.isDirectory()) return;
  throw startError(`${path} is not a folder. ${what}`);
}
