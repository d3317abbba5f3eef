import { createHmac, randomBytes } from 'node:crypto';
import type { Clock } from '../../clock.js';
import { isLoopbackAddress } from '../../net/ip-address.js';
import type { Transcript } from './channel.js';

/**
 * `never` speaks in clear; `opportunistic` uses STARTTLS if it is offered and works, without looking at the certificate, else
 * clear; `require` gives up without STARTTLS; `implicit` starts with TLS (RFC 8314). Credentials turn `opportunistic` into
 * `require`.
 */
export type TlsMode = 'never' | 'opportunistic' | 'require' | 'implicit';

export interface TlsPolicy {
  readonly mode: TlsMode;
  /** Whether the certificate must be good for `servername`. True by default; `opportunistic` never looks. */
  readonly verify?: boolean;
  /** For SNI and the certificate; `host` by default. */
  readonly servername?: string;
  /** PEM of certificates to trust in place of the system's. */
  readonly ca?: string;
}

export interface ClientCredentials {
  readonly username: string;
  readonly password: string;
  /** `loopback` allows them in clear to 127.0.0.0/8 and ::1. */
  readonly plaintext?: 'never' | 'loopback';
}

/** What a proxy tells of its client (XCLIENT). Unknown attributes are left out; those that the server does not offer too. */
export interface ClientIdentity {
  readonly ADDR?: string;
  readonly PORT?: number;
  readonly NAME?: string;
  readonly HELO?: string;
  readonly PROTO?: 'SMTP' | 'ESMTP' | 'LMTP';
  readonly LOGIN?: string;
}

/** One server to talk to, and how. Two with the same values may share connections. */
export interface Destination {
  /** IP address to dial; names are resolved before (`core/dns`), so that what was checked is what is dialled. */
  readonly address: string;
  readonly port: number;
  /** Name of the server, for SNI, certificates and what people read; the address by default. */
  readonly host?: string;
  /** Local IP address to call from. */
  readonly localAddress?: string;
  readonly protocol: 'smtp' | 'lmtp';
  /** False: it is greeted with HELO, and nothing beyond RFC 821 is asked of it. */
  readonly extensions?: boolean;
  readonly tls: TlsPolicy;
  readonly auth?: ClientCredentials;
  /** How we introduce ourselves: a domain or an address literal. */
  readonly helloName: string;
}

/** What belongs to one call alone. */
export interface CallOptions {
  /** `standardDeadlines` where absent. */
  readonly deadlines?: Partial<ClientDeadlines>;
  readonly signal?: AbortSignal;
  /** Records the dialogue. */
  readonly transcript?: Transcript;
  /** Sent by XCLIENT where the server offers it, behind TLS and in front of AUTH. */
  readonly identity?: ClientIdentity;
  readonly clock?: Clock;
}

const keys = new WeakMap<Destination, string>();
const secret = randomBytes(16);

/** What makes two destinations one for the pool. Passwords are part of it, but cannot be read from it. */
export function destinationKey(destination: Destination): string {
  const known = keys.get(destination);
  if (known !== undefined) return known;
  const { address, port, host, localAddress, protocol, extensions = true, tls, auth, helloName } = destination;
  const security = [tls.mode, tls.verify ?? true, tls.servername ?? '', tls.ca ?? ''];
  const password = auth && createHmac('sha256', secret).update(auth.password).digest('base64');
  const account = [auth?.username ?? '', password ?? '', auth?.plaintext ?? ''];
  const made = JSON.stringify([protocol, extensions, address, port, host, localAddress, helloName, security, account]);
  keys.set(destination, made);
  return made;
}

/** Whether TLS must be agreed: credentials never go in clear, except to this machine where that is allowed. */
export function requiresTls(destination: Destination): boolean {
  const { tls, auth } = destination;
  if (tls.mode === 'require' || tls.mode === 'implicit') return true;
  return auth !== undefined && !allowsClearAuth(destination);
}

/** Whether the certificate must be good. */
export function verifies(destination: Destination): boolean {
  const { tls } = destination;
  return tls.verify !== false && (tls.mode === 'implicit' || requiresTls(destination));
}

export function allowsClearAuth({ auth, address }: Destination): boolean {
  return auth?.plaintext === 'loopback' && isLoopbackAddress(address);
}

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
