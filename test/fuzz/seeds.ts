import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { projectRoot } from '../support/project.js';

/** A run that has failed once; every `npm test` repeats it. */
export interface Seed {
  readonly target: string;
  readonly seed: number;
  /** Way to the smallest counterexample, as fast-check tells it; absent for a whole run. */
  readonly path?: string;
  /** What went wrong. */
  readonly why: string;
}

const file = join(projectRoot, 'test', 'fixtures', 'fuzz-seeds.json');

export async function readSeeds(): Promise<readonly Seed[]> {
  return JSON.parse(await readFile(file, 'utf8')) as readonly Seed[];
}

export async function addSeed(seed: Seed): Promise<void> {
  const seeds = await readSeeds();
  await writeFile(file, `${JSON.stringify([...seeds, seed], null, 2)}\n`);
}
