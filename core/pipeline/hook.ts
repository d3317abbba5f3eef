import type { Address } from '../mime/address.js';
import type { ReceivedMessage, RecipientDsn, SmtpSession, Transaction } from './transaction.js';
import type { Stage, Verdict } from './verdict.js';

/** What a hook of each deciding stage is given. */
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
  /** The last word before delivery starts; recipients have their hops. */
  readonly deliver: { readonly transaction: Transaction; readonly message: ReceivedMessage };
}

/** The order within a stage. */
export const phases = ['first', 'policy', 'content', 'route', 'last'] as const;
export type Phase = (typeof phases)[number];

export interface HookOptions {
  /** The phase; `policy` if absent. */
  readonly order?: Phase;
  /** Within the phase: in front of / behind the hooks of that plugin, or of each of those. */
  readonly before?: string | readonly string[];
  readonly after?: string | readonly string[];
  /** Asked only where the client has signed in. */
  readonly signedIn?: boolean;
  /** How long a hook that returns a promise may take, in milliseconds; then the answer is `451 4.3.0`. */
  readonly timeLimitMs?: number;
}

export type Hook<S extends Stage> = (input: StageInput[S]) => Verdict | Promise<Verdict>;

/** One line of the effective chain, as `/pipeline` and `--verbose` print it. */
export interface HookDescription {
  readonly stage: Stage;
  readonly phase: Phase;
  readonly plugin: string;
  /** `shadow`: it is asked, and what it answers is only written down. */
  readonly mode: 'enforce' | 'shadow';
  /** Plugins that it wants to be in front of, and behind. */
  readonly before: readonly string[];
  readonly after: readonly string[];
  readonly timeLimitMs: number;
  readonly calls: number;
  readonly failures: number;
  /** How often a shadowed hook would have decided. */
  readonly shadowed: number;
}
