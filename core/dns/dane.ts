import type { Dane } from '../net/tlsa.js';
import { type DnsResponse, isDnsFailure, type LookupOptions, type SecureResolver } from './resolver.js';

interface MailServer {
  /** As in the MX record, which is secure. */
  readonly host: string;
  /** The domain that the mail is for. */
  readonly domain: string;
  /** The answers to A and AAAA, as far as there are addresses. */
  readonly addresses: readonly DnsResponse<string>[];
}

/**
 * What the TLSA records of a mail server demand; undefined when it has none that are secure (RFC 7672 §2.2). Rejects
 * with a `DnsFailure` when that cannot be known: then no mail may be sent there.
 */
export async function lookUpDane(
  resolver: SecureResolver,
  { host, domain, addresses }: MailServer,
  options: LookupOptions,
): Promise<Dane | undefined> {
  const canonical = addresses.find(({ secure }) => secure === true)?.canonical;
  // Servers without signed addresses are not asked about: name servers of some fail for TLSA (RFC 7672 §2.2.2).
  const bases = canonical === undefined ? await secureAlias(resolver, host, addresses, options) : [canonical, host];
  for (const base of new Set(bases)) {
    const found = await orNone(resolver.resolveTlsa(`_25._tcp.${base}`, options));
    if (found?.secure === true) return { base, names: [...new Set([base, host, domain])], records: found.records };
  }
  return undefined;
}

/** An alias may be signed although what it leads to is not: then its own name counts. */
async function secureAlias(
  resolver: SecureResolver,
  host: string,
  addresses: MailServer['addresses'],
  options: LookupOptions,
): Promise<readonly string[]> {
  if (addresses.every(({ canonical = host }) => canonical === host)) return [];
  return (await orNone(resolver.resolveCname(host, options)))?.secure === true ? [host] : [];
}

/** Undefined when there is no such record. */
async function orNone<T>(asking: Promise<DnsResponse<T>>): Promise<DnsResponse<T> | undefined> {
  try {
    return await asking;
  } catch (error) {
    if (isDnsFailure(error) && (error.kind === 'nxdomain' || error.kind === 'nodata')) return undefined;
    throw error;
  }
}
