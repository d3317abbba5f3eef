import { createHmac, randomBytes } from 'node:crypto';
import type { Clock } from '../../clock.js';
import { isLoopbackAddress } from '../../net/ip-address.js';
import type { Dane } from '../../net/tlsa.js';
import type { Transcript } from './channel.js';

/**
 * `never`: clear text. `opportunistic`: STARTTLS if offered and working, without verifying the certificate, else clear
 * text. `require`: fails without STARTTLS. `implicit`: TLS from the first byte (RFC 8314). Credentials turn
 * `opportunistic` into `require`.
 */
export type TlsMode = 'never' | 'opportunistic' | 'require' | 'implicit';

export interface TlsPolicy {
  readonly mode: TlsMode;
  /** Whether the certificate must be valid for `servername`. Default true; ignored by `opportunistic`. */
  readonly verify?: boolean;
  /** For SNI and the certificate; default `host`. */
  readonly servername?: string;
  /** PEM of the trusted certificates, in place of the system's. */
  readonly ca?: string;
  /** TLSA records: usable ones authenticate the server in place of `verify` (RFC 7672), which is false then. */
  readonly dane?: Dane;
}

export interface ClientCredentials {
  readonly username: string;
  readonly password: string;
  /** `loopback` allows credentials in clear text to 127.0.0.0/8 and ::1. */
  readonly plaintext?: 'never' | 'loopback';
}

/**
 * Attributes of the original client for XCLIENT. Unknown ones, and those that the server does not offer, are not sent.
 */
export interface ClientIdentity {
  readonly ADDR?: string;
  readonly PORT?: number;
  readonly NAME?: string;
  readonly HELO?: string;
  readonly PROTO?: 'SMTP' | 'ESMTP' | 'LMTP';
  readonly LOGIN?: string;
}

/** One server and how to talk to it. Equal servers may share connections. */
export interface RemoteServer {
  /** IP address to dial. Names are resolved beforehand (`core/dns`), so that the checked address is the dialled one. */
  readonly address: string;
  readonly port: number;
  /** Name of the server for SNI, certificates and display; default the address. */
  readonly host?: string;
  /** Local IP address of the connection. */
  readonly localAddress?: string;
  readonly protocol: 'smtp' | 'lmtp';
  /** False: greets with HELO and uses nothing beyond RFC 821. */
  readonly extensions?: boolean;
  readonly tls: TlsPolicy;
  readonly auth?: ClientCredentials;
  /** Our name in EHLO: a domain or an address literal. */
  readonly helloName: string;
}

/** Options of one call. */
export interface CallOptions {
  /** Default `standardDeadlines`. */
  readonly deadlines?: Partial<ClientDeadlines>;
  readonly signal?: AbortSignal;
  /** Records the dialogue. */
  readonly transcript?: Transcript;
  /** Sent by XCLIENT where the server offers it, after TLS and before AUTH. */
  readonly identity?: ClientIdentity;
  /** False: BDAT is not used even where it is offered. */
  readonly chunking?: boolean;
  readonly clock?: Clock;
}

const keys = new WeakMap<RemoteServer, string>();
const secret = randomBytes(16);

/** Pool key of a server. Depends on the password without revealing it. */
export function serverKey(server: RemoteServer): string {
  const known = keys.get(server);
  if (known !== undefined) return known;
  const { address, port, host, localAddress, protocol, extensions = true, tls, auth, helloName } = server;
  const security = [tls.mode, tls.verify ?? true, tls.servername ?? '', tls.ca ?? '', tls.dane];
  const password = auth && createHmac('sha256', secret).update(auth.password).digest('base64');
  const account = [auth?.username ?? '', password ?? '', auth?.plaintext ?? ''];
  const made = JSON.stringify([protocol, extensions, address, port, host, localAddress, helloName, security, account]);
  keys.set(server, made);
  return made;
}

/** Whether TLS is mandatory: credentials never go in clear text, except to this machine where that is allowed. */
export function requiresTls(server: RemoteServer): boolean {
  const { tls, auth } = server;
  if (tls.mode === 'require' || tls.mode === 'implicit') return true;
  return auth !== undefined && !allowsClearAuth(server);
}

/** Whether the certificate must be verified. */
export function verifies(server: RemoteServer): boolean {
  const { tls } = server;
  return tls.verify !== false && (tls.mode === 'implicit' || requiresTls(server));
}

export function allowsClearAuth({ auth, address }: RemoteServer): boolean {
  return auth?.plaintext === 'loopback' && isLoopbackAddress(address);
}

/**
 * Timeouts in milliseconds, absolute: bytes that trickle in do not extend them. Each covers one reply, `blockMs` 64 KiB
 * of the message, `attemptMs` everything from the dial to the last reply of one message.
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
  /** The caller's answer whether the message may still be ended. */
  readonly mayEndMs: number;
  /** The reply to the final dot; in LMTP each of them. */
  readonly finalMs: number;
  /** All LMTP replies to the final dot together. */
  readonly finalsMs: number;
  readonly quitMs: number;
  readonly attemptMs: number;
}

const second = 1000;
const minute = 60 * second;

/** RFC 5321 §4.5.3.2 where it names a value. */
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
  mayEndMs: 10 * second,
  finalMs: 10 * minute,
  finalsMs: Infinity,
  quitMs: 5 * second,
  attemptMs: 60 * minute,
};
