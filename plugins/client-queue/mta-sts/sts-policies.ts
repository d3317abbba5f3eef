import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../core/clock.js';
import { cacheSize } from '../../../core/disk/cache-size.js';
import type { HopFinder, HopSearch, SearchOptions } from '../../../core/dns/next-hop.js';
import { isDnsFailure, type Resolver } from '../../../core/dns/resolver.js';
import type { Log } from '../../../core/log/log.js';
import type { ClientQueueSettings } from '../options.js';
import { fetchPolicy, type PolicyFetchContext } from './policy-fetch.js';
import { allowsServer, type KeptPolicy, parsePolicy, policyId, readPolicies, writePolicies } from './policy.js';

interface StsPoliciesInput {
  /** Absolute path of `mta-sts.json`. */
  readonly file: string;
  readonly resolver: () => Resolver;
  readonly settings: () => Pick<ClientQueueSettings, 'mtaSts' | 'tls' | 'allowPrivateAddresses' | 'resolver'>;
  /** Told of each try to fetch a policy. */
  readonly fetched?: (result: 'fetched' | 'failed') => void;
  readonly clock: Clock;
  readonly log: Log;
  /** Where policy hosts are called and what they are trusted by, in tests. */
  readonly host?: Pick<PolicyFetchContext, 'port' | 'ca'>;
}

/** Of all policies that are remembered, about what they take of the memory: some ten thousands of the usual size. */
const mostBytes = 8_000_000;
const maxRemembered = 10_000;
/** How long mail waits for a policy host, and for the DNS beyond the time after which a name server is asked once more. */
const fetchMs = 10_000;
const secondQuestionMs = 2000;
/** A policy that could not be had is not fetched again sooner (RFC 8461 §3.3). */
const failedPauseMs = 300_000;
/** Name servers that let us wait are not asked again at once, nor is a policy fetched again because they disagree about its id. */
const silentPauseMs = 15_000;
const betweenFetchesMs = 60_000;
const dayMs = 86_400_000;

/** Policies that domains have for the mail to them (RFC 8461), kept over restarts for as long as each says. */
export class StsPolicies {
  readonly #input: StsPoliciesInput;
  readonly #kept = new LRUCache<string, KeptPolicy>({ maxSize: mostBytes, sizeCalculation: sizeOf });
  /** The policies that could not be fetched, and until when they are not tried again, by `clock.monotonic()`. */
  readonly #failed = new LRUCache<string, { readonly id: string; readonly until: number }>(cacheSize(maxRemembered));
  /** Until when nobody is asked whether the domain has a policy, by `clock.monotonic()`. */
  readonly #silent = new LRUCache<string, number>(cacheSize(maxRemembered));
  /** Asked for at this moment. */
  readonly #asked = new Map<string, Promise<KeptPolicy | undefined>>();
  /** Fetched at this moment, or next. */
  readonly #fetching = new Map<string, { readonly id: string; readonly done: Promise<KeptPolicy | undefined> }>();
  #unsaved = false;
  #saving: Promise<void> = Promise.resolve();
  #complained = false;

  private constructor(input: StsPoliciesInput) {
    this.#input = input;
  }

  /** Knows what the file has; one that cannot be used is told in the log, and policies are fetched anew. */
  static async open(input: StsPoliciesInput): Promise<StsPolicies> {
    const policies = new StsPolicies(input);
    try {
      for (const [domain, policy] of await readPolicies(input.file)) policies.#kept.set(domain, policy);
    } catch (error) {
      input.log.warn(
        { err: error, file: input.file },
        'the policies of other domains cannot be read, and are fetched anew',
      );
    }
    return policies;
  }

  /** The policy that holds for mail to a domain now. Asks for it where that is due. Never rejects. */
  of(domain: string): Promise<KeptPolicy | undefined> {
    const { mtaSts, tls } = this.#input.settings();
    if (!mtaSts || tls === 'never' || domain.startsWith('[')) return Promise.resolve(undefined);
    const asked = this.#asked.get(domain);
    if (asked !== undefined) return asked;
    const asking = this.#find(domain).finally(() => this.#asked.delete(domain));
    this.#asked.set(domain, asking);
    return asking;
  }

  /** What is known at this moment, without asking anybody. */
  peek(domain: string): KeptPolicy | undefined {
    const kept = this.#kept.peek(domain);
    return kept !== undefined && this.#input.clock.now() < endOf(kept) ? kept : undefined;
  }

  /** An operator has reason to try those again that could not be fetched. */
  forgetFailures(): void {
    this.#failed.clear();
    this.#silent.clear();
  }

  /** Writes down what is new; a disk that refuses is told in the log, and tried again by the next call. */
  save(): Promise<void> {
    // Behind one that is under way: the older one must not come last.
    this.#saving = this.#saving.then(() => this.#save());
    return this.#saving;
  }

  async #save(): Promise<void> {
    if (!this.#unsaved) return;
    this.#unsaved = false;
    const { clock, file, log } = this.#input;
    // A clock that is ahead by less than that ends none for good.
    const since = clock.now() - dayMs;
    const worth = [...this.#kept.entries()].filter(([, kept]) => since < endOf(kept)).toReversed();
    try {
      await writePolicies(file, worth);
      this.#complained = false;
    } catch (error) {
      this.#unsaved = true;
      if (!this.#complained) log.warn({ err: error, file }, 'the policies of other domains cannot be written down');
      this.#complained = true;
    }
  }

  async #find(domain: string): Promise<KeptPolicy | undefined> {
    // Whoever gets mail is remembered the longest.
    this.#kept.get(domain);
    const id = await this.#currentId(domain);
    const kept = this.peek(domain);
    // A record that is gone or kept from us takes no policy away (RFC 8461 §5.1).
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
    const patience = AbortSignal.timeout(Math.min(settings().resolver.timeoutMs, fetchMs) + secondQuestionMs);
    try {
      return policyId((await resolver().resolveTxt(`_mta-sts.${domain}`, { signal: patience })).records);
    } catch (error) {
      const isSilent = patience.aborted || (isDnsFailure(error) && error.kind === 'timeout');
      if (isSilent) this.#silent.set(domain, clock.monotonic() + silentPauseMs);
      return undefined;
    }
  }

  /** One at a time of a domain, each policy once. Undefined when there is none to be had, or it was tried a moment ago. Never rejects. */
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
    try {
      const signal = AbortSignal.timeout(fetchMs);
      const allowPrivate = settings().allowPrivateAddresses;
      const policy = parsePolicy(await fetchPolicy(domain, { resolver: resolver(), allowPrivate, signal, ...host }));
      if (policy === undefined) throw new Error('what the policy host has is no policy');
      // What is cut out of a text keeps all of the text in memory; a copy does not.
      const kept: KeptPolicy = structuredClone({ id, ...policy, mx: [...policy.mx], fetchedAt: clock.now() });
      this.#failed.delete(domain);
      this.#kept.set(domain, kept);
      this.#unsaved = true;
      log.info({ domain, id, mode: kept.mode, mx: kept.mx.slice(0, 20) }, 'an MTA-STS policy was fetched');
      fetched?.('fetched');
      return kept;
    } catch (error) {
      this.#failed.set(domain, { id: structuredClone(id), until: clock.monotonic() + failedPauseMs });
      log.warn({ domain, id, err: error }, 'an MTA-STS policy could not be fetched');
      fetched?.('failed');
      return undefined;
    }
  }
}

const sizeOf = ({ mx }: KeptPolicy, domain: string): number =>
  mx.reduce((sum, name) => sum + 40 + name.length, 200 + domain.length);

/** At half its life, after a day at the latest: who wants to take it away must keep it from us for long. */
const isToBeRenewed = ({ maxAge }: KeptPolicy, age: number): boolean => age < 0 || age > Math.min(dayMs, maxAge * 500);

/** When it ceases to hold, in milliseconds since the epoch. */
export const endOf = ({ fetchedAt, maxAge }: KeptPolicy): number => fetchedAt + maxAge * 1000;

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
