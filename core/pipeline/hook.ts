import type { Readable } from 'node:stream';
import type { Address } from '../mime/address.js';
import type { RecipientDsn } from '../smtp/protocol/parameters.js';
import type { ReceivedMessage, SmtpSession, Transaction } from './transaction.js';
import type { Stage, Verdict } from './verdict.js';

/** Input of the hooks of each deciding stage. */
export interface StageInput {
  readonly connect: { readonly session: SmtpSession };
  readonly ehlo: { readonly session: SmtpSession; readonly verb: 'HELO' | 'EHLO' | 'LHLO'; readonly name: string };
  readonly auth: {
    readonly session: SmtpSession;
    readonly mechanism: 'PLAIN' | 'LOGIN';
    readonly username: string;
    readonly password: string;
  };
  readonly mailFrom: { readonly transaction: Transaction };
  readonly rcptTo: { readonly transaction: Transaction; readonly address: Address; readonly dsn?: RecipientDsn };
  readonly message: { readonly transaction: Transaction; readonly message: ReceivedMessage };
  /** The last stage before delivery; recipients have their hops. */
  readonly deliver: { readonly transaction: Transaction; readonly message: ReceivedMessage };
  /** Before each delivery of queued mail. A `defer` is tried again as the schedule says, a `reject` is returned. */
  readonly attempt: { readonly attempt: OutgoingAttempt };
}

/** A delivery of queued mail that is about to begin. */
export interface OutgoingAttempt {
  /** Id of the queue entry. */
  readonly id: string;
  /** Null for the null reverse-path. */
  readonly reversePath: Address | null;
  /** Those that are tried together. */
  readonly recipients: readonly Address[];
  /** `relay` for other servers, else the delivery target of this server. */
  readonly target: string;
  /** A domain, `[literal]`, `route:NAME` or `target:NAME`. */
  readonly destination: string;
  /** Attempts before this one. */
  readonly attempts: number;
  /** Milliseconds since the epoch. */
  readonly queuedAt: number;
  /** Bytes. */
  readonly size: number;
  /** The message from its first trace header field to its end, before it is signed. */
  open(): Promise<Readable>;
}

/** The order within a stage. */
export const phases = ['first', 'policy', 'content', 'route', 'last'] as const;
export type Phase = (typeof phases)[number];

export interface HookOptions {
  /** Default `policy`. */
  readonly order?: Phase;
  /** Within the phase: before or after the hooks of that plugin, or of each of those. */
  readonly before?: string | readonly string[];
  readonly after?: string | readonly string[];
  /** Runs only for authenticated sessions. */
  readonly signedIn?: boolean;
  /** Time limit of a promise, in milliseconds; after it the reply is `451 4.3.0`. */
  readonly timeLimitMs?: number;
}

export type Hook<S extends Stage> = (input: StageInput[S]) => Verdict | Promise<Verdict>;

/** One hook for `/pipeline` and `--verbose`. */
export interface HookDescription {
  readonly stage: Stage;
  readonly phase: Phase;
  readonly plugin: string;
  /** `shadow`: the hook runs, but its verdict is only recorded. */
  readonly mode: 'enforce' | 'shadow';
  /** Plugins whose hooks it precedes and follows. */
  readonly before: readonly string[];
  readonly after: readonly string[];
  readonly timeLimitMs: number;
  readonly calls: number;
  readonly failures: number;
  /** How often the hook would have decided in shadow mode. */
  readonly shadowed: number;
}
