import type { ReplyAction } from './reply-classification.js';

/** The last word on one recipient. */
export interface Verdict {
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

/** What one attempt to deliver a lease came to. */
export interface Tried {
  readonly at: number;
  readonly ms: number;
  /** By the place of the recipient in its entry; who is missing was not tried. */
  readonly verdicts: ReadonlyMap<number, Verdict>;
  /** `name[address]:port` of the server that was last spoken with; null when there was none to dial. */
  readonly host: string | null;
  readonly tls: string | null;
  /** The server passes on who wants to hear of what (RFC 3461). */
  readonly tellsDsn: boolean;
  /** The connection was lost behind the final dot. */
  readonly lost: boolean;
  /** Whether a server has answered at all, and is not to be left alone for how it ended. */
  readonly reached: boolean;
  /** Why trying it again would be in vain, though no server has said anything: an operator has to see it. */
  readonly hold?: string;
}
