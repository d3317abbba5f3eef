import type { LongLinePolicy } from '../../pipeline/long-lines.js';
import type { TLSSocketOptions } from 'node:tls';
import type { Clock } from '../../clock.js';
import type { SignInAttempt } from '../../contracts/sign-in-history.js';
import type { Log } from '../../log/log.js';
import type { Domain } from '../../mime/address.js';
import type { TransactionPipeline } from '../../pipeline/transaction-pipeline.js';
import type { Spool } from '../../spool/spool.js';
import type { SmtpLimits } from './limits.js';
import type { ListenerSettings } from './listener-options.js';
import type { ListenerMeter } from './meter.js';

/** Source of pipeline snapshots. */
export interface PipelineSource {
  snapshot(): TransactionPipeline;
}

/** Slows password guessing, with exemptions: `ClientLimits` (limits.ts). */
interface AuthThrottle {
  /** Seconds until the address may try again; 0 for now. */
  retryAfter(address: string): number;
  /** Runs the attempt in turn; undefined when the address must wait, and nothing was run. */
  attempt<T>(address: string, attempt: () => Promise<T>): Promise<T | undefined>;
  /** Counts a failure. True when the address must wait now; returned once in each window. */
  record(address: string): boolean;
}

/** Settings that may change at run time; read for each command. */
export interface EngineSettings {
  readonly relayNetworks: readonly string[];
  readonly limits: SmtpLimits;
  readonly lineEndings: 'normalise' | 'reject';
  readonly earlyData: 'refuse' | 'accept';
  readonly longLines: LongLinePolicy;
}

/** Shared by all sessions of one listener. */
export interface ListenerContext {
  readonly listener: ListenerSettings;
  readonly hostname: string;
  /** Where mail for `<postmaster>` goes (RFC 5321 §4.5.1); undefined when no local domain is known. */
  readonly postmasterDomain: () => Domain | undefined;
  readonly spool: Spool;
  readonly pipeline: PipelineSource;
  readonly clock: Clock;
  readonly log: Log;
  readonly meter: ListenerMeter;
  readonly throttle: AuthThrottle;
  readonly settings: () => EngineSettings;
  readonly record: (attempt: SignInAttempt) => void;
  /** For the server's end of STARTTLS; undefined when the listener does not offer it. */
  readonly tlsOptions: () => TLSSocketOptions | undefined;
}
