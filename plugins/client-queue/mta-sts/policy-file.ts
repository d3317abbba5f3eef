import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { unlessMissing } from '../../../core/disk/fault.js';

const Kept = z.strictObject({
  id: z.string(),
  mode: z.enum(['enforce', 'testing', 'none']),
  mx: z.array(z.string()),
  maxAge: z.int().min(0),
  fetchedAt: z.number(),
});
const Stored = z.strictObject({ policies: z.record(z.string(), Kept) });

/** A policy as it was fetched; `fetchedAt` in milliseconds since the epoch. */
export type KeptPolicy = Readonly<z.output<typeof Kept>>;

/** The policies that are known, by domain. None when there is no file. @throws what keeps the file from being read or understood */
export async function readPolicies(file: string): Promise<ReadonlyMap<string, KeptPolicy>> {
  const text = await unlessMissing(readFile(file, 'utf8'));
  return new Map(text === undefined ? [] : Object.entries(Stored.parse(JSON.parse(text)).policies));
}

/** Replaces the file; durable when it resolves. */
export async function writePolicies(file: string, policies: Iterable<readonly [string, KeptPolicy]>): Promise<void> {
  await writeFileAtomic(file, `${JSON.stringify({ policies: Object.fromEntries(policies) }, null, 2)}\n`);
}
