import { isDeepStrictEqual } from 'node:util';
import type { Clock, Timers } from '../clock.js';
import type { Dns, DnsAnswer, DnsQuestionOptions, DnsRecords, DnsType } from '../contracts/dns.js';
import { CachingResolver } from './caching-resolver.js';
import { type DnsSettings, SystemResolver } from './system-resolver.js';
import {
  dnsFailure,
  type DnsFailureKind,
  isDnsFailure,
  questionAddress,
  questionName,
  type Resolver,
} from './resolver.js';

interface PluginDnsOptions {
  readonly live: {
    readonly current: { readonly settings: { readonly dns: DnsSettings } };
    watch(watcher: () => void): unknown;
  };
  readonly clock: Clock;
  readonly timers: Timers;
  /** Replaces the name servers of the configuration. */
  readonly resolver: Resolver | undefined;
}

/** Leaves time for two tries of one server within a lookup. */
const timeoutMs = 2000;

/** Opens the DNS service for plugins. A reload with other name servers replaces the resolver and its cache. */
export function openPluginDns({ live, clock, timers, resolver }: PluginDnsOptions): DnsLookups {
  if (resolver !== undefined) return new DnsLookups({ resolver, timers });
  let settings = live.current.settings.dns;
  const lookups = new DnsLookups({ resolver: resolverOf(settings, clock), timers });
  live.watch(() => {
    const next = live.current.settings.dns;
    if (isDeepStrictEqual(next, settings)) return;
    lookups.use(resolverOf(next, clock));
    settings = next;
  });
  return lookups;
}

const resolverOf = ({ servers }: DnsSettings, clock: Clock): Resolver =>
  new CachingResolver(new SystemResolver({ servers, timeoutMs, tries: 2 }), {}, clock);

interface DnsLookupOptions {
  readonly resolver: Resolver;
  readonly timers: Timers;
  /** Timeout of one query, in milliseconds. */
  readonly maxMs?: number;
}

const defaultTimeoutMs = 5000;

type Ask = (name: string, signal: AbortSignal) => Promise<readonly DnsRecords[DnsType][]>;

/** Error codes of `node:dns`. */
const codes: Readonly<Record<DnsFailureKind, string>> = {
  nxdomain: 'ENOTFOUND',
  nodata: 'ENODATA',
  servfail: 'ESERVFAIL',
  timeout: 'ETIMEOUT',
  aborted: 'ECANCELLED',
};

/** DNS for plugins, on top of the server's resolver. */
export class DnsLookups implements Dns {
  readonly #timers: Timers;
  readonly #maxMs: number;
  #asks: Readonly<Record<DnsType, Ask>>;

  constructor({ resolver, timers, maxMs = defaultTimeoutMs }: DnsLookupOptions) {
    this.#timers = timers;
    this.#maxMs = maxMs;
    this.#asks = asksOf(resolver);
  }

  /** Replaces the resolver for queries to come. */
  use(resolver: Resolver): void {
    this.#asks = asksOf(resolver);
  }

  async lookup<T extends DnsType>(name: string, type: T, options: DnsQuestionOptions = {}): Promise<DnsAnswer<T>> {
    try {
      // The type of the query is the type of its records.
      return { status: 'found', records: (await this.#ask(name, type, options)) as readonly DnsRecords[T][] };
    } catch (error) {
      const kind = isDnsFailure(error) ? error.kind : 'servfail';
      if (kind === 'nxdomain' || kind === 'nodata') return { status: kind, records: [] };
      return { status: 'failed', records: [], reason: kind };
    }
  }

  readonly resolve: Dns['resolve'] = async (name, type) => {
    try {
      return [...(await this.#ask(name, type, {}))];
    } catch (error) {
      const kind = isDnsFailure(error) ? error.kind : 'servfail';
      const code = codes[kind];
      throw Object.assign(new Error(`query${type} ${code} ${name}`, { cause: error }), {
        code,
        hostname: name,
        syscall: `query${type}`,
      });
    }
  };

  async #ask(name: string, type: string, { signal }: DnsQuestionOptions): Promise<readonly DnsRecords[DnsType][]> {
    if (!isType(type)) throw new TypeError(`The DNS is asked for A, AAAA, MX, TXT and PTR here, not for ${type}.`);
    const asked = type === 'PTR' ? questionAddress(name) : questionName(name);
    if (asked === undefined) throw dnsFailure('nxdomain', `${type} ${name.slice(0, 255)}`);
    const limit = new AbortController();
    const given = signal === undefined ? limit.signal : AbortSignal.any([signal, limit.signal]);
    const cancel = this.#timers.after(this.#maxMs, () => limit.abort());
    try {
      return await this.#asks[type](asked, given);
    } catch (error) {
      throw limit.signal.aborted ? dnsFailure('timeout', `${type} ${asked}`, error) : error;
    } finally {
      cancel();
    }
  }
}

const isType = (type: string): type is DnsType => ['A', 'AAAA', 'MX', 'TXT', 'PTR'].includes(type);

const asksOf = (resolver: Resolver): Readonly<Record<DnsType, Ask>> => ({
  A: async (name, signal) => (await resolver.resolve4(name, { signal })).records,
  AAAA: async (name, signal) => (await resolver.resolve6(name, { signal })).records,
  MX: async (name, signal) =>
    (await resolver.resolveMx(name, { signal })).records.map(({ exchange, preference }) => ({
      exchange,
      priority: preference,
    })),
  TXT: async (name, signal) => (await resolver.resolveTxt(name, { signal })).records.map((text) => [text]),
  PTR: async (address, signal) => (await resolver.resolvePtr(address, { signal })).records,
});
