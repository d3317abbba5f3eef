import type { HopFinder, HopSearch, NoRoute, SearchOptions } from '../../../core/dns/next-hop.js';
import { allowsServer } from './policy.js';
import type { KeptPolicy } from './policy-file.js';
import type { StsPolicies } from './sts-policies.js';

/** Finds the servers of domains, and of these only such as the domain's own policy allows (RFC 8461 §5). */
export class PolicedFinder implements HopFinder {
  readonly #finder: HopFinder & { forget(): void };
  readonly #policies: Pick<StsPolicies, 'of' | 'forgetFailures'>;

  constructor(finder: HopFinder & { forget(): void }, policies: Pick<StsPolicies, 'of' | 'forgetFailures'>) {
    this.#finder = finder;
    this.#policies = policies;
  }

  async forDomain(domain: string, options?: SearchOptions): Promise<HopSearch> {
    const [search, policy] = await Promise.all([this.#finder.forDomain(domain, options), this.#policies.of(domain)]);
    return search.outcome === 'found' && policy?.mode === 'enforce' ? underPolicy(search, domain, policy) : search;
  }

  /** Who names a server by hand goes by no policy of a domain. */
  forHosts(hosts: readonly string[], options?: SearchOptions): Promise<HopSearch> {
    return this.#finder.forHosts(hosts, options);
  }

  /** What was learnt before counts no more, but for the policies that still hold. */
  forget(): void {
    this.#finder.forget();
    this.#policies.forgetFailures();
  }
}

type Found = Extract<HopSearch, { outcome: 'found' }>;

function underPolicy(search: Found, domain: string, policy: KeptPolicy): HopSearch {
  const hops = search.hops.filter(({ host }) => allowsServer(policy, host));
  return hops.length === 0 ? forbidden(search, domain) : { ...search, hops, mustVerify: true };
}

const forbidden = ({ hops }: Found, domain: string): NoRoute => ({
  outcome: 'failed',
  reason: 'policy',
  code: 451,
  status: '4.7.0',
  text: `The MTA-STS policy of ${domain} allows none of its mail servers (${[...new Set(hops.map(({ host }) => host))].join(', ')})`,
  permanent: false,
});
