import { z } from 'zod';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { unlessMissing } from '../../../core/disk/fault.js';
import { readRegularText } from '../../../core/disk/regular-file.js';
import { maxSeconds } from './policy.js';

const Kept = z.strictObject({
  id: z.string(),
  mode: z.enum(['enforce', 'testing', 'none']),
  mx: z.array(z.string()),
  maxAge: z.int().min(0).max(maxSeconds),
  fetchedAt: z.number().min(0).max(8.64e15),
});
const Stored = z.strictObject({ policies: z.record(z.string(), z.unknown()) });

/** A policy as it was fetched; `fetchedAt` in milliseconds since the epoch. */
export type KeptPolicy = Readonly<z.output<typeof Kept>>;

/** The policies that are known, by domain; those that make no sense are left out. None when there is no file. @throws what keeps the file from being read or understood */
export async function readPolicies(file: string): Promise<ReadonlyMap<string, KeptPolicy>> {
  const text = await unlessMissing(readRegularText(file));
  const stored = text === undefined ? {} : Stored.parse(JSON.parse(text)).policies;
  const policies = new Map<string, KeptPolicy>();
  for (const [domain, written] of Object.entries(stored)) {
    const { data } = Kept.safeParse(written);
    if (data !== undefined && (data.mode === 'none' || data.mx.length > 0)) policies.set(domain, data);
  }
  return policies;
}

/** Replaces the file; durable when it resolves. */
export async function writePolicies(file: string, policies: Iterable<readonly [string, KeptPolicy]>): Promise<void> {
  await writeFileAtomic(file, `${JSON.stringify({ policies: Object.fromEntries(policies) })}\n`);
}
