import type { HopFinder, HopSearch, SearchOptions } from '../../../core/dns/next-hop.js';
import { allowsServer } from './policy.js';
import type { StsPolicies } from './sts-policies.js';

type Policies = Pick<StsPolicies, 'of' | 'forgetFailures'>;

/** Finds the servers of domains, and of these only such as the domain's own policy allows (RFC 8461 §5). */
export class PolicedFinder implements HopFinder {
  readonly #finder: HopFinder & { forget(): void };
  readonly #policies: Policies;

  constructor(finder: HopFinder & { forget(): void }, policies: Policies) {
    this.#finder = finder;
    this.#policies = policies;
  }

  async forDomain(domain: string, options?: SearchOptions): Promise<HopSearch> {
    // Asked for while the finder asks for the servers.
    const enforced = this.#policies.of(domain).then((policy) => (policy?.mode === 'enforce' ? policy : undefined));
    const allowed = async () => {
      const policy = await enforced;
      return policy && ((host: string) => allowsServer(policy, host));
    };
    const search = await this.#finder.forDomain(domain, { ...options, allowed });
    if (search.outcome === 'failed' || (await enforced) === undefined) return search;
    return { ...search, mustVerify: true };
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
