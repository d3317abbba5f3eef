import { LRUCache } from 'lru-cache';
import { roomFor } from '../../../core/cache-room.js';
import type { Clock } from '../../../core/clock.js';
import type { Resolver } from '../../../core/dns/resolver.js';
import type { Log } from '../../../core/log.js';
import type { ClientQueueSettings } from '../options.js';
import { parsePolicy, policyId } from './policy.js';
import { fetchPolicy, type PolicyFetchGround } from './policy-fetch.js';
import { type KeptPolicy, readPolicies, writePolicies } from './policy-file.js';

export interface StsPoliciesInput {
  /** Absolute path of `mta-sts.json`. */
  readonly file: string;
  readonly resolver: () => Resolver;
  readonly settings: () => Pick<ClientQueueSettings, 'mtaSts' | 'tls' | 'allowPrivateAddresses'>;
  /** Told of each try to fetch a policy. */
  readonly fetched?: (result: 'fetched' | 'failed') => void;
  readonly clock: Clock;
  readonly log: Log;
  /** Where policy hosts are called and what they are trusted by, in tests. */
  readonly host?: Pick<PolicyFetchGround, 'port' | 'ca'>;
}

/** Domains that are remembered. */
const mostKept = 10_000;
/** How long mail waits for the DNS and for a policy host. */
const questionMs = 5000;
const fetchMs = 10_000;
/** The same policy of a domain is not fetched again sooner (RFC 8461 §3.3). */
const betweenFetchesMs = 300_000;
/** One that is so old is fetched again while it still holds: who wants to take it away must keep it from us for all of its life. */
const renewedAfterMs = 86_400_000;

/** Policies that domains have for the mail to them (RFC 8461), kept over restarts for as long as each says. */
export class StsPolicies {
  readonly #input: StsPoliciesInput;
  readonly #kept = new LRUCache<string, KeptPolicy>(roomFor(mostKept));
  /** The policies that were tried to be fetched last, and until when they are not tried again, by `clock.monotonic()`. */
  readonly #tried = new LRUCache<string, { readonly id: string; readonly until: number }>(roomFor(mostKept));
  /** Asked for at this moment. */
  readonly #asked = new Map<string, Promise<KeptPolicy | undefined>>();
  #unsaved = false;

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
    this.#tried.clear();
  }

  /** Writes down what is new; a disk that refuses is told in the log, and tried again by the next call. */
  async save(): Promise<void> {
    if (!this.#unsaved) return;
    this.#unsaved = false;
    const now = this.#input.clock.now();
    const holding = [...this.#kept.entries()].filter(([, kept]) => now < endOf(kept)).toReversed();
    try {
      await writePolicies(this.#input.file, holding);
    } catch (error) {
      this.#unsaved = true;
      this.#input.log.warn(
        { err: error, file: this.#input.file },
        'the policies of other domains cannot be written down',
      );
    }
  }

  async #find(domain: string): Promise<KeptPolicy | undefined> {
    const id = await this.#currentId(domain);
    const kept = this.peek(domain);
    // A record that is gone or kept from us takes no policy away (RFC 8461 §5.1).
    if (id === undefined) return kept;
    if (id !== kept?.id) return (await this.#fetch(domain, id)) ?? kept;
    if (this.#input.clock.now() - kept.fetchedAt > renewedAfterMs) void this.#fetch(domain, id);
    this.#kept.get(domain);
    return kept;
  }

  async #currentId(domain: string): Promise<string | undefined> {
    try {
      const signal = AbortSignal.timeout(questionMs);
      return policyId((await this.#input.resolver().resolveTxt(`_mta-sts.${domain}`, { signal })).records);
    } catch {
      return undefined;
    }
  }

  /** Undefined when there is none to be had, or it was tried a moment ago. Never rejects. */
  async #fetch(domain: string, id: string): Promise<KeptPolicy | undefined> {
    const { clock, log, resolver, settings, host, fetched } = this.#input;
    const tried = this.#tried.get(domain);
    if (tried?.id === id && clock.monotonic() < tried.until) return undefined;
    this.#tried.set(domain, { id, until: clock.monotonic() + betweenFetchesMs });
    try {
      const signal = AbortSignal.timeout(fetchMs);
      const allowPrivate = settings().allowPrivateAddresses;
      const policy = parsePolicy(await fetchPolicy(domain, { resolver: resolver(), allowPrivate, signal, ...host }));
      if (policy === undefined) throw new Error('what the policy host has is no policy');
      const kept = { id, ...policy, mx: [...policy.mx], fetchedAt: clock.now() };
      this.#kept.set(domain, kept);
      this.#unsaved = true;
      log.info({ domain, id, mode: kept.mode, mx: kept.mx.slice(0, 20) }, 'an MTA-STS policy was fetched');
      fetched?.('fetched');
      return kept;
    } catch (error) {
      log.warn({ domain, id, err: error }, 'an MTA-STS policy could not be fetched');
      fetched?.('failed');
      return undefined;
    }
  }
}

/** When it ceases to hold, in milliseconds since the epoch. */
export const endOf = ({ fetchedAt, maxAge }: KeptPolicy): number => fetchedAt + maxAge * 1000;
