import { z } from 'zod';
import type { OwnerCall } from '../../core/contracts/server.js';
import { lockOwner } from '../../core/host/owner-call.js';
import type { Clock } from '../../core/clock.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import type { Finding, FindingGroup } from '../../core/contracts/doctor-check.js';
import { faultCode } from '../../core/disk/fault.js';
import { type LockInfo, readLock } from '../../core/disk/lock.js';
import type { Resolver } from '../../core/dns/resolver.js';

const RelayOptions = z.object({ resolver: z.object({ servers: z.array(z.string()).optional() }) });

/** Name servers that only the queue asks; undefined where it has none. */
export const relayServers = ({ options }: Pick<LoadedConfiguration, 'options'>): readonly string[] | undefined =>
  RelayOptions.safeParse(options.get('client-queue')).data?.resolver.servers;

/** The owner of the data folder's lock. */
export type OwnerState =
  | { readonly state: 'none' }
  /** The lock cannot be read. */
  | { readonly state: 'hidden'; readonly code: string }
  | { readonly state: 'starting'; readonly lock: LockInfo }
  /** It listens, or did, and does not answer. */
  | { readonly state: 'silent'; readonly lock: LockInfo; readonly why: string }
  | {
      readonly state: 'answers';
      readonly lock: LockInfo;
      readonly call: OwnerCall;
      readonly ms: number;
      readonly health: SeenHealth;
    };

const Health = z.object({
  components: z.record(
    z.string(),
    z.object({
      status: z.enum(['up', 'degraded', 'down']),
      why: z.string().nullable(),
      since: z.string(),
      figures: z.record(z.string(), z.number()).optional(),
    }),
  ),
});
type SeenHealth = z.output<typeof Health>;

/** Input of every check. */
export interface DoctorContext {
  readonly configuration: LoadedConfiguration;
  readonly owner: OwnerState;
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/** A built-in check. */
export interface CoreCheck {
  readonly group: FindingGroup;
  readonly name: string;
  run(context: DoctorContext): Promise<readonly Finding[]> | readonly Finding[];
}

/** The process of the server; undefined when none is running. */
export const ownerLock = ({ owner }: Pick<DoctorContext, 'owner'>): LockInfo | undefined =>
  'lock' in owner ? owner.lock : undefined;

/** Time limit for an answer of a running server. */
const timeoutMs = 3000;

/** Who owns the data folder, and whether it answers. */
export async function lookAtOwner(data: string, clock: Clock): Promise<OwnerState> {
  const lock = await readLock(data).catch((error: unknown) => ({ code: faultCode(error) ?? 'unreadable' }));
  if (lock === undefined) return { state: 'none' };
  if ('code' in lock) return { state: 'hidden', code: lock.code };
  if (lock.http === null || lock.token === null) return { state: 'starting', lock };
  try {
    const call = await lockOwner(data, timeoutMs);
    if (call === undefined) return { state: 'none' };
    const began = clock.monotonic();
    const { status, body } = await call('GET', '/health/extended');
    const ms = Math.round(clock.monotonic() - began);
    // It also answers when the plugin with that page is off.
    const health = Health.safeParse(body).data ?? { components: {} };
    if (status >= 500 && status !== 503) return { state: 'silent', lock, why: `its health page answers ${status}` };
    return { state: 'answers', lock, call, ms, health };
  } catch {
    return { state: 'silent', lock, why: `it does not answer at ${lock.http} within ${timeoutMs / 1000} s` };
  }
}
