import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';

export interface SweepLimits {
  /** Bytes of all files together. */
  readonly diskBytes: number;
}

const kept = /^[0-9a-f]{32}\.(?:index|summaries)$/;
const unfinished = /^[0-9a-f]{32}\.(?:index\.[0-9a-z]+\.tmp|summaries\.new)$/;

/** Removes what a dead process left half-written, and the files of folders that were not used for long when there are too many. */
export function sweepFiles(folder: string, { diskBytes }: SweepLimits): void {
  const names = namesIn(folder);
  for (const name of names.filter((name) => unfinished.test(name))) rmSync(join(folder, name), { force: true });
  const files = names
    .filter((name) => kept.test(name))
    .map((name) => ({ name, ...factsOf(join(folder, name)) }))
    .toSorted((a, b) => b.changedAt - a.changedAt);
  let sum = 0;
  for (const { name, size } of files) {
    sum += size;
    if (sum > diskBytes) rmSync(join(folder, name), { force: true });
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
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
