import type { Clock } from '../../core/clock.js';
import type { OwnerCall } from '../../core/cli/command.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import type { Finding, FindingGroup } from '../../core/contracts/doctor-check.js';
import type { LockInfo } from '../../core/disk/lock.js';
import type { Resolver } from '../../core/dns/resolver.js';
import type { HealthState } from '../../core/host/health.js';

/** Whoever owns the data folder. */
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

export interface SeenHealth {
  readonly components: Readonly<
    Record<string, { readonly status: HealthState; readonly why: string | null; readonly since: string }>
  >;
}

/** Everything that is examined, and by what. */
export interface Patient {
  readonly configuration: LoadedConfiguration;
  readonly owner: OwnerState;
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/** A check of the server itself. */
export interface CoreCheck {
  readonly group: FindingGroup;
  readonly name: string;
  run(patient: Patient): Promise<readonly Finding[]> | readonly Finding[];
}

/** The process that runs the server; undefined when none does. */
export const ownerLock = ({ owner }: Pick<Patient, 'owner'>): LockInfo | undefined =>
  'lock' in owner ? owner.lock : undefined;
