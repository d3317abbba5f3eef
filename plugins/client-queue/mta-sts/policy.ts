import { z } from 'zod';

/** Policy of a domain for senders of mail to it (RFC 8461 §3.2). */
interface StsPolicy {
  readonly mode: 'enforce' | 'testing' | 'none';
  /** Names of its mail servers in lower case; `*.example.net` matches exactly one more label. */
  readonly mx: readonly string[];
  /** Lifetime in seconds. */
  readonly maxAge: number;
}

/** A year (RFC 8461 §3.2). */
const maxSeconds = 31_557_600;
/** A shorter life would end before a failed renewal is repeated. */
const leastSeconds = 900;
const maxServers = 200;
const maxLine = 1000;
const modes = ['enforce', 'testing', 'none'] as const;
const serverName = /^(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)+$/;

/** The policy id in a domain's DNS (RFC 8461 §3.1); undefined unless exactly one record has one. */
export function policyId(records: readonly string[]): string | undefined {
  const ours = records.filter((text) => text.length <= maxLine && /^v=STSv1\s*;/.test(text));
  const [only = ''] = ours;
  const id = /;\s*id=([a-zA-Z0-9]{1,32})\s*(?:;|$)/.exec(only)?.[1];
  return ours.length === 1 ? id : undefined;
}

/**
 * Undefined for an invalid policy. The first of repeated keys counts; unknown keys and invalid server names are ignored
 * (RFC 8461 §3.2). Linear time for any input.
 */
export function parsePolicy(text: string): StsPolicy | undefined {
  const single = new Map<string, string>();
  const mx: string[] = [];
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(':');
    if (colon < 0 || line.length > maxLine) continue;
    const key = line.slice(0, colon).trimEnd();
    const value = line.slice(colon + 1).trim();
    if (key === 'mx') mx.push(value.toLowerCase().replace(/\.$/, ''));
    else if (!single.has(key)) single.set(key, value);
  }
  const mode = modes.find((one) => one === single.get('mode'));
  const age = single.get('max_age') ?? '';
  const maxAge = /^\d{1,10}$/.test(age) ? Math.max(leastSeconds, Math.min(Number(age), maxSeconds)) : undefined;
  if (single.get('version') !== 'STSv1' || mode === undefined || maxAge === undefined) return undefined;
  if (mode === 'none') return { mode, mx: [], maxAge };
  const servers = new Set(mx.filter((name) => serverName.test(name)));
  return servers.size > 0 && servers.size <= maxServers ? { mode, mx: [...servers], maxAge } : undefined;
}

const Kept = z.strictObject({
  id: z.string(),
  mode: z.enum(['enforce', 'testing', 'none']),
  mx: z.array(z.string()),
  maxAge: z.int().min(0).max(maxSeconds),
  fetchedAt: z.number().min(0).max(8.64e15),
});
const Stored = z.strictObject({ policies: z.record(z.string(), z.unknown()) });

/** A fetched policy; `fetchedAt` in milliseconds since the epoch. */
export type KeptPolicy = Readonly<z.output<typeof Kept>>;

/** The policies of `mta-sts.json` by domain, without invalid ones. @throws when the text cannot be parsed */
export function parsePolicies(text: string): ReadonlyMap<string, KeptPolicy> {
  const policies = new Map<string, KeptPolicy>();
  for (const [domain, written] of Object.entries(Stored.parse(JSON.parse(text)).policies)) {
    const { data } = Kept.safeParse(written);
    if (data !== undefined && (data.mode === 'none' || data.mx.length > 0)) policies.set(domain, data);
  }
  return policies;
}

export const formatPolicies = (policies: Iterable<readonly [string, KeptPolicy]>): string =>
  `${JSON.stringify({ policies: Object.fromEntries(policies) })}\n`;
