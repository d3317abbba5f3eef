import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { filesNamed, type OwnEntry } from '../../../core/host/unknown-entries.js';
import { folderOfIndex } from './index-file.js';

export interface SweepLimits {
  /** Resolved folder of the mailboxes. */
  readonly root: string;
  /** Maximum bytes of all files together. */
  readonly diskBytes: number;
}

const kept = /^([0-9a-f]{32})\.(?:index|summaries)$/;
const unfinished = /^[0-9a-f]{32}\.(?:index\.[0-9a-z]+\.tmp|summaries\.new)$/;

/** Files that belong to the cache. */
export const isOwnCacheFile: OwnEntry = filesNamed(kept, unfinished);

/**
 * Removes unfinished files of dead processes, files of removed folders, and the least recently used files above the
 * limit.
 */
export function sweepFiles(folder: string, { root, diskBytes }: SweepLimits): void {
  const names = namesIn(folder);
  const remove = (name: string): void => rmSync(join(folder, name), { force: true });
  for (const name of names.filter((name) => unfinished.test(name))) remove(name);
  const files = names.filter((name) => kept.test(name));
  const wanted = new Set(files.map(keyOf).filter((key) => isOfFolder(join(folder, `${key}.index`), root)));
  for (const name of files.filter((name) => !wanted.has(keyOf(name)))) remove(name);
  const newest = files
    .filter((name) => wanted.has(keyOf(name)))
    .map((name) => ({ name, ...factsOf(join(folder, name)) }))
    .toSorted((a, b) => b.changedAt - a.changedAt);
  let sum = 0;
  for (const { name, size } of newest) {
    sum += size;
    if (sum > diskBytes) remove(name);
  }
}

function keyOf(name: string): string {
  return kept.exec(name)?.[1] ?? '';
}

function isOfFolder(index: string, root: string): boolean {
  const folder = folderOfIndex(index);
  return folder !== undefined && existsSync(join(root, folder));
}

/** Names of cache files only. */
function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter(isOwnCacheFile)
      .map(({ name }) => name);
  } catch {
    return [];
  }
}

function factsOf(path: string): { readonly size: number; readonly changedAt: number } {
  try {
    const { size, mtimeMs } = statSync(path);
    return { size, changedAt: mtimeMs };
  } catch {
    return { size: 0, changedAt: 0 };
  }
}
