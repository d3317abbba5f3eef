import { service } from './service.js';
import type { Phase } from '../pipeline/hook.js';
import type { Stage } from '../pipeline/verdict.js';

/** A fictitious message to explain. */
export interface ExplainQuestion {
  /** IP address of the client. */
  readonly ip: string;
  /** Name in EHLO. */
  readonly ehlo: string;
  readonly mode: 'mx' | 'submission' | 'lmtp';
  /** `local@domain` of the authenticated user; null without authentication. */
  readonly authenticated: string | null;
  readonly tls: boolean;
  /** Reverse-path; empty or `<>` for the null one. */
  readonly mail: string;
  readonly rcpt: readonly string[];
}

/** What one hook would answer. */
export interface ExplainedStep {
  readonly plugin: string;
  readonly phase: Phase;
  /** `notAsked`: an earlier hook decided. */
  readonly verdict: 'next' | 'accept' | 'reject' | 'defer' | 'discard' | 'hold' | 'route' | 'change' | 'notAsked';
  /** Reply, reason or target, where there is one. */
  readonly detail: string | null;
  /** Shadow mode: its verdict is not followed. */
  readonly shadow: boolean;
}

export interface ExplainedReply {
  readonly code: number;
  readonly status: string | null;
  readonly text: string;
}

/** One stage with all its hooks in order. */
export interface ExplainedStage {
  readonly stage: Stage;
  /** Of `rcptTo`: the recipient. */
  readonly address: string | null;
  readonly steps: readonly ExplainedStep[];
  readonly outcome: 'pass' | 'refuse' | 'discard';
  /** The reply to the client; null for the usual 250. */
  readonly reply: ExplainedReply | null;
}

export interface ExplainedRecipient extends ExplainedStage {
  /** Target and destination in it; null when refused or discarded. */
  readonly hop: { readonly target: string; readonly destination: string } | null;
  /** What the target would do with it, one sentence each: servers, ports, TLS. */
  readonly way: readonly string[];
}

export interface Explanation {
  /** Stages of the session and of MAIL, up to the first that refuses. */
  readonly stages: readonly ExplainedStage[];
  /** Empty when the sender would be refused. */
  readonly recipients: readonly ExplainedRecipient[];
  /** Hooks that need the message itself, which does not exist here. */
  readonly unasked: readonly { readonly stage: Stage; readonly plugin: string; readonly phase: Phase }[];
}

/** Runs the deciding hooks without effects: hooks see `session.dryRun` and leave no trace. */
export interface Explaining {
  /** @throws Problem `invalid` for what no client could send */
  explain(question: ExplainQuestion): Promise<Explanation>;
}

export const explaining = service<Explaining>('postern.explaining');
