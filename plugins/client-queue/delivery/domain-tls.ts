import type { FoundHops } from '../../../core/dns/next-hop.js';
import type { TlsPolicy } from '../../../core/smtp/client/destination.js';
import type { ClientQueueSettings } from '../options.js';
import { covers } from './site-key.js';

/** How the servers of a domain are spoken with that are found by MX: as the operator wants it, and the domain itself. */
export function domainTls(
  domain: string,
  { tls, requireTls }: Pick<ClientQueueSettings, 'tls' | 'requireTls'>,
  { mustVerify = false }: Pick<FoundHops, 'mustVerify'>,
): TlsPolicy {
  const isRequired = mustVerify || tls === 'require' || requireTls.some((rule) => covers(rule.toLowerCase(), domain));
  return isRequired ? { mode: 'require', verify: true } : { mode: tls, verify: false };
}
