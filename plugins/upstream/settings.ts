import type { ClientCredentials, ClientDeadlines, TlsPolicy } from '../../core/smtp/client/destination.js';
import type { BreakerOptions } from './breaker.js';

/** The servers that stand for one upstream, and how they are spoken with. */
export interface UpstreamSettings {
  /** Tried in this order: names, IP addresses, each with `:port` if it has one of its own. */
  readonly hosts: readonly string[];
  readonly port: number;
  readonly protocol: 'smtp' | 'lmtp';
  /** False: greeted with HELO. */
  readonly extensions?: boolean;
  readonly tls: TlsPolicy;
  readonly auth?: ClientCredentials;
  /** Tells the server who the client is where it wants to know (XCLIENT); such connections serve one client alone. */
  readonly xclient: boolean;
  /** To each host at a time. */
  readonly connections: number;
  /** How long an unused connection is kept, in milliseconds. */
  readonly idleMs: number;
  /** Milliseconds for everything up to the reply to one RCPT: calls, MAIL and RCPT. */
  readonly answerMs: number;
  readonly deadlines: Partial<ClientDeadlines>;
  readonly breaker: BreakerOptions;
}
