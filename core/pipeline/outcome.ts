import type { Address } from '../mime/address.js';

/**
 * What became of one recipient of a message that waits in a queue: behind an attempt to deliver it, or when somebody or its age has
 * ended it. Told when the queue has it on disk, once, and never again after a crash. Times are milliseconds since the epoch.
 */
export interface Outcome {
  /** Of the queue entry: the id of the transaction that it was accepted in, for some followed by `-` and a word. */
  readonly id: string;
  /** Null for the null reverse-path `<>`. */
  readonly reversePath: Address | null;
  readonly recipient: Address;
  /**
   * `deferred` is tried again; `held` waits for an operator; the others are the end: taken, refused, too old, or deleted by an
   * operator.
   */
  readonly status: 'delivered' | 'deferred' | 'bounced' | 'expired' | 'held' | 'deleted';
  /** What was said; its host is null for what this server says itself. Null where nobody has said anything. */
  readonly reply: {
    readonly code: number;
    /** Enhanced status code (RFC 3463). */
    readonly status: string;
    readonly text: string;
    readonly host: string | null;
  } | null;
  /** Of `held`. */
  readonly reason?: string;
  /** How often he was tried until now. */
  readonly attempts: number;
  /** Of `deferred`; null else. */
  readonly nextAttemptAt: number | null;
  readonly at: number;
  /** `relay` for other servers, else the delivery target of this server that the queue brings him to. */
  readonly target: string;
  /** ENVID of the sender (RFC 3461 §4.4). */
  readonly envelopeId?: string;
}
