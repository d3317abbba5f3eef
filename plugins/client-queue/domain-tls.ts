import type { TlsPolicy } from '../../core/smtp/client/destination.js';
import type { ClientQueueSettings } from './options.js';
import { covers } from './site-key.js';

/** How the servers of a domain are spoken with that are found by MX. */
export function domainTls(
  domain: string,
  { tls, requireTls }: Pick<ClientQueueSettings, 'tls' | 'requireTls'>,
): TlsPolicy {
  const isRequired = tls === 'require' || requireTls.some((rule) => covers(rule.toLowerCase(), domain));
  return isRequired ? { mode: 'require', verify: true } : { mode: tls, verify: false };
}
