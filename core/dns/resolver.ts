import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';
import { normalAddress } from '../net/ip-address.js';

export interface MxRecord {
  /** Without a dot at its end; empty for a null MX (RFC 7505). */
  readonly exchange: string;
  readonly preference: number;
}

export interface LookupOptions {
  readonly signal?: AbortSignal;
  /** Asks again even if the answer is known. */
  readonly fresh?: boolean;
}

/** An answer and for how many seconds it may be kept; undefined where that is not known. */
export interface Answer<T> {
  readonly records: readonly T[];
  readonly ttl: number | undefined;
}

/**
 * Asks the DNS. Names are ASCII without a dot at their end. Every lookup resolves with at least one record or rejects with a
 * `DnsFailure`. Injectable: relay, proxy and checks of senders take whatever fulfils this.
 */
export interface Resolver {
  resolveMx(name: string, options?: LookupOptions): Promise<Answer<MxRecord>>;
  resolve4(name: string, options?: LookupOptions): Promise<Answer<string>>;
  resolve6(name: string, options?: LookupOptions): Promise<Answer<string>>;
  /** One element for each record, its strings joined. */
  resolveTxt(name: string, options?: LookupOptions): Promise<Answer<string>>;
  /** Names of an IP address. */
  resolvePtr(address: string, options?: LookupOptions): Promise<Answer<string>>;
}

/** RFC 1035 §2.3.4, in octets of text without the last dot. */
const longestName = 253;
/** Not only host names are asked for: `_dmarc`, and what the macros of SPF make (RFC 7208 §7). */
const label = /^[!-[\]-~]{1,63}$/;

/** The name as the DNS is asked for it: ASCII, lower case, no dot at its end. Undefined for what can be no name. */
export function questionName(text: string): string | undefined {
  const bare = text.endsWith('.') ? text.slice(0, -1) : text;
  const ascii = /[^\0-~]/.test(bare) && !/[\0-\x20\x7f]/.test(bare) ? domainToASCII(bare) : bare.toLowerCase();
  const isName = ascii.length <= longestName && ascii.split('.').every((one) => label.test(one));
  return isName ? ascii : undefined;
}

/** The address that is asked for: written as such, or as its name below `in-addr.arpa` or `ip6.arpa` (RFC 3596 §2.5). */
export function questionAddress(text: string): string | undefined {
  if (isIP(text) !== 0) return normalAddress(text);
  const [, reversed = '', zone] = /^([0-9a-f.]+)\.(in-addr|ip6)\.arpa\.?$/i.exec(text) ?? [];
  const parts = reversed.split('.').toReversed();
  const address = zone?.toLowerCase() === 'ip6' ? (parts.join('').match(/.{4}/g) ?? []).join(':') : parts.join('.');
  const isWhole = parts.length === 4 || (parts.length === 32 && parts.every((part) => part.length === 1));
  return isWhole && isIP(address) !== 0 ? normalAddress(address) : undefined;
}

/** Why a question has no answer: the name does not exist, it has no such record, or nobody who knows could be asked. */
export type DnsFailureKind = 'nxdomain' | 'nodata' | 'servfail' | 'timeout' | 'aborted';

export interface DnsFailure extends Error {
  readonly postern: 'dns-failure';
  readonly kind: DnsFailureKind;
  readonly name: string;
}

export function dnsFailure(kind: DnsFailureKind, question: string, cause?: unknown): DnsFailure {
  const error = new Error(`${kind} for ${question}`, cause === undefined ? undefined : { cause });
  return Object.assign(error, { name: question, postern: 'dns-failure', kind } as const);
}

export function isDnsFailure(value: unknown): value is DnsFailure {
  return value instanceof Error && (value as Partial<DnsFailure>).postern === 'dns-failure';
}
