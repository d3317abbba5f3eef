import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../core/clock.js';
import type { StoredDocument } from '../../../core/contracts/cluster.js';
import { cacheSize } from '../../../core/disk/cache-size.js';
import type { HopFinder, HopSearch, SearchOptions } from '../../../core/dns/next-hop.js';
import { allowsServer } from '../../../core/dns/mta-sts.js';
import { isDnsFailure, type Resolver } from '../../../core/dns/resolver.js';
import type { Log } from '../../../core/log/log.js';
import type { ClientQueueSettings } from '../options.js';
import { fetchPolicy, type PolicyFetchContext } from './policy-fetch.js';
import { certificateFault, type ResultType } from '../tls-reports/tls-results.js';
import { type KeptPolicy, parsePolicies, parsePolicy, policyId, formatPolicies } from './policy.js';

interface StsPoliciesInput {
  /** `mta-sts.json`. */
  readonly document: StoredDocument;
  readonly resolver: () => Resolver;
  readonly settings: () => Pick<ClientQueueSettings, 'mtaSts' | 'tls' | 'allowPrivateAddresses' | 'resolver'>;
  /** Called after each fetch. */
  readonly fetched?: (result: 'fetched' | 'failed') => void;
  readonly clock: Clock;
  readonly log: Log;
  /** Port and trusted certificates of policy hosts, in tests. */
  readonly host?: Pick<PolicyFetchContext, 'port' | 'ca'>;
}

/** Approximate memory limit of all policies: some ten thousand of typical size. Bytes. */
const maxBytes = 8_000_000;
const maxRemembered = 10_000;
/** Milliseconds that mail waits for a policy host, and for the DNS after its first retry. */
const fetchMs = 10_000;
const secondQuestionMs = 2000;
/** Pause after a failed fetch (RFC 8461 §3.3). */
const failedPauseMs = 300_000;
/** Pause after a DNS timeout, and after name servers disagreed about a policy's id. */
const silentPauseMs = 15_000;
const betweenFetchesMs = 60_000;
const dayMs = 86_400_000;

/** MTA-STS policies of domains (RFC 8461), kept over restarts for their lifetime. */
export class StsPolicies {
  readonly #input: StsPoliciesInput;
  readonly #kept = new LRUCache<string, KeptPolicy>({ maxSize: maxBytes, sizeCalculation: sizeOf });
  /** Failed fetches, and until when they are not repeated, by `clock.monotonic()`. */
  readonly #failed = new LRUCache<string, { readonly id: string; readonly until: number; readonly fault: ResultType }>(
    cacheSize(maxRemembered),
  );
  /** Until when the DNS is not asked about a domain, by `clock.monotonic()`. */
  readonly #silent = new LRUCache<string, number>(cacheSize(maxRemembered));
  /** Running DNS queries. */
  readonly #asked = new Map<string, Promise<KeptPolicy | undefined>>();
  /** Running and waiting fetches. */
  readonly #fetching = new Map<string, { readonly id: string; readonly done: Promise<KeptPolicy | undefined> }>();
  /** Of the document as it was last read or written. */
  #version: number | undefined;
  #unsaved = false;
  #saving: Promise<void> = Promise.resolve();
  #complained = false;

  private constructor(input: StsPoliciesInput) {
    this.#input = input;
  }

  /** Reads the document; an unreadable one is logged, and policies are fetched anew. */
  static async open(input: StsPoliciesInput): Promise<StsPolicies> {
    const policies = new StsPolicies(input);
    await policies.#load();
    input.document.watch(() => {
      policies.#saving = policies.#saving.then(() => policies.#load());
    });
    return policies;
  }

  /** Adds the stored policies; of two for a domain the later one counts. */
  async #load(): Promise<void> {
    const { document, log } = this.#input;
    try {
      const found = await document.read();
      this.#version = found?.version;
      if (found === undefined) return;
      for (const [domain, policy] of parsePolicies(found.text)) {
        if (policy.fetchedAt > (this.#kept.peek(domain)?.fetchedAt ?? -1)) this.#kept.set(domain, policy);
      }
    } catch (error) {
      log.warn(
        { err: error, file: document.place },
        'the policies of other domains cannot be read, and are fetched anew',
      );
    }
  }

  /** The policy in force for a domain. Looks it up and fetches it when due. Never rejects. */
  of(domain: string): Promise<KeptPolicy | undefined> {
    const { mtaSts, tls } = this.#input.settings();
    if (!mtaSts || tls === 'never' || domain.startsWith('[')) return Promise.resolve(undefined);
    const asked = this.#asked.get(domain);
    if (asked !== undefined) return asked;
    const asking = this.#find(domain).finally(() => this.#asked.delete(domain));
    this.#asked.set(domain, asking);
    return asking;
  }

  /** The known policy, without a lookup. */
  peek(domain: string): KeptPolicy | undefined {
    const kept = this.#kept.peek(domain);
    return kept !== undefined && this.#input.clock.now() < endOf(kept) ? kept : undefined;
  }

  /** Why the policy that a domain announces could not be fetched a moment ago; undefined when it could. */
  fault(domain: string): ResultType | undefined {
    const failed = this.#failed.peek(domain);
    return failed !== undefined && this.#input.clock.monotonic() < failed.until ? failed.fault : undefined;
  }

  /** Allows an immediate retry of failed fetches, at an operator's request. */
  forgetFailures(): void {
    this.#failed.clear();
    this.#silent.clear();
  }

  /** Writes new policies; a write error is logged, and the next call tries again. */
  save(): Promise<void> {
    // After a running save, so that the older state is not written last.
    this.#saving = this.#saving.then(() => this.#save());
    return this.#saving;
  }

  async #save(): Promise<void> {
    if (!this.#unsaved) return;
    this.#unsaved = false;
    const { clock, document, log } = this.#input;
    // Tolerates a clock that is less than a day ahead.
    const since = clock.now() - dayMs;
    const worth = [...this.#kept.entries()].filter(([, kept]) => since < endOf(kept)).toReversed();
    try {
      const version = await document.replace(formatPolicies(worth), this.#version);
      this.#complained = false;
      if (version !== undefined) this.#version = version;
      else {
        // Another server was quicker.
        this.#unsaved = true;
        const before = this.#version;
        await this.#load();
        if (this.#version !== before) await this.#save();
      }
    } catch (error) {
      this.#unsaved = true;
      if (!this.#complained) {
        log.warn({ err: error, file: document.place }, 'the policies of other domains cannot be written down');
      }
      this.#complained = true;
    }
  }

  async #find(domain: string): Promise<KeptPolicy | undefined> {
    // Marks it as recently used.
    this.#kept.get(domain);
    const id = await this.#currentId(domain);
    const kept = this.peek(domain);
    // A missing DNS record does not remove a policy (RFC 8461 §5.1).
    if (id === undefined) return kept;
    const age = kept === undefined ? Infinity : this.#input.clock.now() - kept.fetchedAt;
    if (age >= 0 && age < betweenFetchesMs) return kept;
    if (id !== kept?.id) return (await this.#fetch(domain, id)) ?? this.peek(domain);
    if (isToBeRenewed(kept, age)) void this.#fetch(domain, id);
    return kept;
  }

  async #currentId(domain: string): Promise<string | undefined> {
    const { clock, resolver, settings } = this.#input;
    if ((this.#silent.get(domain) ?? 0) > clock.monotonic()) return undefined;
    const signal = AbortSignal.timeout(Math.min(settings().resolver.timeoutMs, fetchMs) + secondQuestionMs);
    try {
      return policyId((await resolver().resolveTxt(`_mta-sts.${domain}`, { signal })).records);
    } catch (error) {
      const isSilent = signal.aborted || (isDnsFailure(error) && error.kind === 'timeout');
      if (isSilent) this.#silent.set(domain, clock.monotonic() + silentPauseMs);
      return undefined;
    }
  }

  /** One fetch at a time per domain, each policy once. Undefined when it failed, now or a moment ago. Never rejects. */
  async #fetch(domain: string, id: string): Promise<KeptPolicy | undefined> {
    const { clock } = this.#input;
    const before = this.#fetching.get(domain);
    if (before?.id === id) return before.done;
    const failed = this.#failed.get(domain);
    if (failed?.id === id && clock.monotonic() < failed.until) return undefined;
    const after = before?.done ?? Promise.resolve();
    const mine = { id, done: after.then(() => this.#fetchNow(domain, id)) };
    this.#fetching.set(domain, mine);
    const policy = await mine.done;
    if (this.#fetching.get(domain) === mine) this.#fetching.delete(domain);
    return policy;
  }

  async #fetchNow(domain: string, id: string): Promise<KeptPolicy | undefined> {
    const { clock, log, resolver, settings, host, fetched } = this.#input;
    let fault: ResultType | undefined;
    try {
      const signal = AbortSignal.timeout(fetchMs);
      const allowPrivate = settings().allowPrivateAddresses;
      const policy = parsePolicy(await fetchPolicy(domain, { resolver: resolver(), allowPrivate, signal, ...host }));
      if (policy === undefined) {
        fault = 'sts-policy-invalid';
        throw new Error('what the policy host has is no policy');
      }
      // A substring keeps the whole text in memory; a copy does not.
      const kept: KeptPolicy = structuredClone({ id, ...policy, mx: [...policy.mx], fetchedAt: clock.now() });
      this.#failed.delete(domain);
      this.#kept.set(domain, kept);
      this.#unsaved = true;
      log.info({ domain, id, mode: kept.mode, mx: kept.mx.slice(0, 20) }, 'an MTA-STS policy was fetched');
      fetched?.('fetched');
      return kept;
    } catch (error) {
      fault ??= isCertificateFault(error) ? 'sts-webpki-invalid' : 'sts-policy-fetch-error';
      this.#failed.set(domain, { id: structuredClone(id), until: clock.monotonic() + failedPauseMs, fault });
      log.warn({ domain, id, err: error }, 'an MTA-STS policy could not be fetched');
      fetched?.('failed');
      return undefined;
    }
  }
}

/** The policy host has no valid certificate. */
function isCertificateFault(error: unknown): boolean {
  const { code = '' } = error as NodeJS.ErrnoException;
  return certificateFault(code).result.startsWith('certificate-');
}

const sizeOf = ({ mx }: KeptPolicy, domain: string): number =>
  mx.reduce((sum, name) => sum + 40 + name.length, 200 + domain.length);

/** At half its life, at the latest after a day: an attacker must block renewals for long to let it expire. */
const isToBeRenewed = ({ maxAge }: KeptPolicy, age: number): boolean => age < 0 || age > Math.min(dayMs, maxAge * 500);

/** End of its validity in milliseconds since the epoch. */
export const endOf = ({ fetchedAt, maxAge }: KeptPolicy): number => fetchedAt + maxAge * 1000;

type Policies = Pick<StsPolicies, 'of' | 'forgetFailures'>;

/** Finds the servers of domains, and only those that the domain's policy allows (RFC 8461 §5). */
export class PolicedFinder implements HopFinder {
  readonly #finder: HopFinder & { forget(): void };
  readonly #policies: Policies;

  constructor(finder: HopFinder & { forget(): void }, policies: Policies) {
    this.#finder = finder;
    this.#policies = policies;
  }

  async forDomain(domain: string, options?: SearchOptions): Promise<HopSearch> {
    // Looked up at the same time as the servers.
    const enforced = this.#policies.of(domain).then((policy) => (policy?.mode === 'enforce' ? policy : undefined));
    // A search that fails first does not wait for it.
    enforced.catch(() => undefined);
    const allowed = async () => {
      const policy = await enforced;
      return policy && ((host: string) => allowsServer(policy, host));
    };
    const search = await this.#finder.forDomain(domain, { ...options, allowed });
    if (search.outcome === 'failed' || (await enforced) === undefined) return search;
    return { ...search, mustVerify: true };
  }

  /** A server that was named explicitly is not subject to a domain's policy. */
  forHosts(hosts: readonly string[], options?: SearchOptions): Promise<HopSearch> {
    return this.#finder.forHosts(hosts, options);
  }

  /** Forgets cached servers and failures, but not valid policies. */
  forget(): void {
    this.#finder.forget();
    this.#policies.forgetFailures();
  }
}
