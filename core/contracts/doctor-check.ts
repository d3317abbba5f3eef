import type { Clock } from '../clock.js';
import type { OwnerCall } from './server.js';
import type { Resolver } from '../dns/resolver.js';

/** In the order of the report. */
export const findingGroups = [
  'Configuration',
  'System',
  'Data folder',
  'Ports',
  'Access',
  'DNS',
  'TLS',
  'Mail',
  'Cluster',
  'Server',
] as const;
export type FindingGroup = (typeof findingGroups)[number];

/**
 * `problem`: mail or an operator is affected, or will be; the exit status is 1. `advice`: it works, but something else
 * would be wiser. `skipped`: not possible, or not needed.
 */
export type FindingState = 'ok' | 'advice' | 'problem' | 'skipped';

/** A finding: a sentence about the state, and one about what to do. Never a secret. */
export interface Finding {
  readonly state: FindingState;
  readonly is: string;
  readonly todo?: string;
}

/** A check of `postern doctor`, with and without a running server. */
export interface DoctorCheck<O> {
  readonly group: FindingGroup;
  /** Lower case words joined by `-`, in the JSON of the report. */
  readonly name: string;
  /**
   * Changes nothing. Aborted after some seconds. An exception is a problem too: `Problem` and start errors with their
   * sentence, others by their name.
   */
  run(input: DoctorInput<O>): Promise<readonly Finding[]> | readonly Finding[];
}

export interface DoctorInput<O> {
  /** The validated options of the plugin. */
  readonly options: O;
  readonly configuration: {
    readonly hostname: string;
    /** Absolute path of the data folder, which may not exist. */
    readonly data: string;
    /** Base of relative paths in the configuration. */
    readonly folder: string;
    readonly domains: readonly string[];
  };
  /** Calls the running server; undefined when none answers. */
  readonly owner: OwnerCall | undefined;
  readonly resolver: Resolver;
  readonly clock: Clock;
  /** Aborted when the time of the check is over. */
  readonly signal: AbortSignal;
}

export const fine = (is: string): Finding => ({ state: 'ok', is });
export const advice = (is: string, todo: string): Finding => ({ state: 'advice', is, todo });
export const trouble = (is: string, todo: string): Finding => ({ state: 'problem', is, todo });
export const skipped = (is: string): Finding => ({ state: 'skipped', is });
