import type { ReplyAction } from './reply-classification.js';

/** The last word on one recipient. */
export interface RecipientVerdict {
  readonly action: ReplyAction;
  readonly code: number;
  readonly status: string;
  readonly text: string;
  /** Server that said it; null for our own findings. */
  readonly host: string | null;
  /** Seconds. */
  readonly retryAfter: number | null;
  readonly category: string;
}

/**
 * How the servers took it: one has answered; one was reached, and was silent for too long or left with the message; none was reached,
 * or the last of them is left alone from now on.
 */
export type ServersTried = 'answered' | 'stalled' | 'unreachable';

/** What one attempt to deliver a lease came to. */
export interface AttemptResult {
  readonly at: number;
  readonly ms: number;
  /** By the place of the recipient in its entry; who is missing was not tried. */
  readonly verdicts: ReadonlyMap<number, RecipientVerdict>;
  /** `name[address]:port` of the server that was last spoken with; null when there was none to dial. */
  readonly host: string | null;
  readonly tls: string | null;
  /** The server passes on who wants to hear of what (RFC 3461). */
  readonly tellsDsn: boolean;
  /** The connection was lost behind the final dot. */
  readonly lost: boolean;
  readonly servers: ServersTried;
  /** Why trying it again would be in vain, though no server has said anything: an operator has to see it. */
  readonly hold?: string;
}
