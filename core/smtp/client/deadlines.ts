/**
 * How long each step may take, in milliseconds. Absolute: bytes that trickle in do not put a deadline off. Each holds for one
 * reply, `blockMs` for every 64 KiB of the message, `attemptMs` for everything from the dial to the last reply of one message.
 */
export interface ClientDeadlines {
  readonly connectMs: number;
  readonly greetingMs: number;
  /** EHLO, HELO, LHLO, XCLIENT, RSET and NOOP. */
  readonly helloMs: number;
  /** STARTTLS and the handshake. */
  readonly tlsMs: number;
  /** Each line of AUTH. */
  readonly authMs: number;
  readonly mailMs: number;
  readonly rcptMs: number;
  /** The reply to DATA. */
  readonly dataMs: number;
  readonly blockMs: number;
  /** The reply to the last dot; of LMTP each of them. */
  readonly finalMs: number;
  /** All replies of LMTP to the last dot together. */
  readonly finalsMs: number;
  readonly quitMs: number;
  readonly attemptMs: number;
}

const second = 1000;
const minute = 60 * second;

/** RFC 5321 §4.5.3.2 where it says something; QUIT is a courtesy. */
export const standardDeadlines: ClientDeadlines = {
  connectMs: 30 * second,
  greetingMs: 5 * minute,
  helloMs: 5 * minute,
  tlsMs: 2 * minute,
  authMs: 2 * minute,
  mailMs: 5 * minute,
  rcptMs: 5 * minute,
  dataMs: 2 * minute,
  blockMs: 3 * minute,
  finalMs: 10 * minute,
  finalsMs: Infinity,
  quitMs: 5 * second,
  attemptMs: 60 * minute,
};
