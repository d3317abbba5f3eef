import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import type { ReplyAction } from './reply-classification.js';

/** The final verdict on one recipient. */
export interface RecipientVerdict {
  readonly action: ReplyAction;
  readonly code: number;
  readonly status: string;
  readonly text: string;
  /** Server that replied; null for our own findings. */
  readonly host: string | null;
  /** Seconds. */
  readonly retryAfter: number | null;
  readonly category: string;
  /** Name of the matching reply rule; null when only the first digit decided. */
  readonly rule?: string | null;
}

/**
 * How the servers reacted: `answered`; reached, but silent for too long or gone with the message; not reached, or known
 * to be dead.
 */
export type ServersTried = 'answered' | 'stalled' | 'unreachable';

/** Result of an attempt to deliver a lease. */
export interface AttemptResult {
  readonly at: number;
  readonly ms: number;
  /** By the index of the recipient in its entry; missing recipients were not tried. */
  readonly verdicts: ReadonlyMap<number, RecipientVerdict>;
  /** `name[address]:port` of the last server of the dialogue; null when none was dialled. */
  readonly host: string | null;
  readonly tls: string | null;
  /** The server handles DSN requests itself (RFC 3461). */
  readonly tellsDsn: boolean;
  /** The connection was lost after the final dot. */
  readonly lost: boolean;
  readonly servers: ServersTried;
  /** Why a retry is useless although no server refused: an operator has to look at it. */
  readonly hold?: string;
}

/** An attempt under way. */
export interface RunningAttempt {
  readonly lease: Lease;
  /** Monotonic time of its beginning, in milliseconds. */
  readonly since: number;
  /**
   * Ends it as if a deadline had passed. False, and nothing happens, when the server may have the message already.
   * Absent while there is nothing to end.
   */
  cut?: () => boolean;
}

/** A message got through: the attempt has a final verdict about a recipient. */
export function isFruitful({ verdicts }: Pick<AttemptResult, 'verdicts'>): boolean {
  for (const { action } of verdicts.values()) if (action !== 'defer') return true;
  return false;
}
