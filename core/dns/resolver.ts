import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';
import { normalAddress } from '../net/ip-address.js';
import type { TlsaRecord } from '../net/tlsa.js';

export interface MxRecord {
  /** Without a trailing dot; empty for a null MX (RFC 7505). */
  readonly exchange: string;
  readonly preference: number;
}

export interface LookupOptions {
  readonly signal?: AbortSignal;
  /** Queries again even if the answer is cached. */
  readonly fresh?: boolean;
}

/** An answer and its time to live in seconds; undefined where that is unknown. */
export interface DnsResponse<T> {
  readonly records: readonly T[];
  readonly ttl: number | undefined;
  /** The resolver has validated the answer (DNSSEC), and is trusted to. */
  readonly secure?: boolean;
  /** Name at the end of aliases; known for answers of a `SecureResolver`. */
  readonly canonical?: string;
}

/**
 * Queries the DNS. Names are ASCII without a trailing dot. Every lookup resolves with at least one record or rejects
 * with a `DnsFailure`.
 */
export interface Resolver {
  resolveMx(name: string, options?: LookupOptions): Promise<DnsResponse<MxRecord>>;
  resolve4(name: string, options?: LookupOptions): Promise<DnsResponse<string>>;
  resolve6(name: string, options?: LookupOptions): Promise<DnsResponse<string>>;
  /** One element for each record, its strings joined. */
  resolveTxt(name: string, options?: LookupOptions): Promise<DnsResponse<string>>;
  /** Names of an IP address. */
  resolvePtr(address: string, options?: LookupOptions): Promise<DnsResponse<string>>;
}

/** A resolver whose name servers validate answers (DNSSEC), so that `secure` is known. */
export interface SecureResolver extends Resolver {
  resolveTlsa(name: string, options?: LookupOptions): Promise<DnsResponse<TlsaRecord>>;
  resolveCname(name: string, options?: LookupOptions): Promise<DnsResponse<string>>;
}

/** RFC 1035 §2.3.4: octets of a name without its trailing dot. */
const maxNameLength = 253;
/** Also allows names that are no host names: `_dmarc`, and those that macros of SPF make (RFC 7208 §7). */
const label = /^[!-[\]-~]{1,63}$/;

/** The name as it is queried: ASCII, lower case, without a trailing dot. Undefined when it can be no name. */
export function questionName(text: string): string | undefined {
  const bare = text.endsWith('.') ? text.slice(0, -1) : text;
  const ascii = /[^\0-~]/.test(bare) && !/[\0-\x20\x7f]/.test(bare) ? domainToASCII(bare) : bare.toLowerCase();
  const isName = ascii.length <= maxNameLength && ascii.split('.').every((one) => label.test(one));
  return isName ? ascii : undefined;
}

/** The IP address of a PTR query, written as such or as a name below `in-addr.arpa` or `ip6.arpa` (RFC 3596 §2.5). */
export function questionAddress(text: string): string | undefined {
  if (isIP(text) !== 0) return normalAddress(text);
  const [, reversed = '', zone] = /^([0-9a-f.]+)\.(in-addr|ip6)\.arpa\.?$/i.exec(text) ?? [];
  const parts = reversed.split('.').toReversed();
  const address = zone?.toLowerCase() === 'ip6' ? (parts.join('').match(/.{4}/g) ?? []).join(':') : parts.join('.');
  const isWhole = parts.length === 4 || (parts.length === 32 && parts.every((part) => part.length === 1));
  return isWhole && isIP(address) !== 0 ? normalAddress(address) : undefined;
}

/** Why a query has no answer: the name does not exist, it has no such record, or no server answered. */
export type DnsFailureKind = 'nxdomain' | 'nodata' | 'servfail' | 'timeout' | 'aborted';

export interface DnsFailure extends Error {
  readonly postern: 'dns-failure';
  readonly kind: DnsFailureKind;
  readonly name: string;
  /** That there is no such name or record is validated (DNSSEC). */
  readonly secure?: boolean;
}

export function dnsFailure(kind: DnsFailureKind, question: string, cause?: unknown, secure = false): DnsFailure {
  const error = new Error(`${kind} for ${question}`, cause === undefined ? undefined : { cause });
  return Object.assign(error, { name: question, postern: 'dns-failure', kind, secure } as const);
}

export function isDnsFailure(value: unknown): value is DnsFailure {
  return value instanceof Error && (value as Partial<DnsFailure>).postern === 'dns-failure';
}
