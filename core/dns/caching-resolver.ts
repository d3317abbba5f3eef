import { LRUCache } from 'lru-cache';
import { type Clock, systemClock } from '../clock.js';
import {
  type DnsResponse,
  dnsFailure,
  type DnsFailure,
  isDnsFailure,
  type LookupOptions,
  type Resolver,
  type SecureResolver,
} from './resolver.js';

export interface CacheLimits {
  /** Bounds of a record's time to live, in seconds. */
  readonly minSeconds: number;
  readonly maxSeconds: number;
  /** Time to live of records that name none. */
  readonly unknownSeconds: number;
  /** How long a missing name or record is remembered. */
  readonly negativeSeconds: number;
  /** How long a failed query is remembered: just long enough to spare the name server. */
  readonly failureSeconds: number;
  /** Maximum number of answers of the usual size; a larger answer counts as several. */
  readonly entries: number;
}

const defaultCacheLimits: CacheLimits = {
  minSeconds: 5,
  maxSeconds: 3600,
  unknownSeconds: 300,
  negativeSeconds: 60,
  failureSeconds: 5,
  entries: 10_000,
};

type Known =
  | { readonly until: number; readonly answer: DnsResponse<unknown> }
  | { readonly until: number; readonly failure: DnsFailure };

type Question = keyof SecureResolver;

/** Caches the answers of another resolver and joins equal queries that run at the same time. */
export class CachingResolver implements SecureResolver {
  readonly #resolver: Resolver & Partial<SecureResolver>;
  readonly #limits: CacheLimits;
  readonly #clock: Clock;
  readonly #known: LRUCache<string, Known>;
  /** Queries in flight. */
  readonly #asked = new Map<string, Promise<Known>>();

  /** @param resolver one that does not validate has no answer about TLSA and CNAME records */
  constructor(
    resolver: Resolver & Partial<SecureResolver>,
    limits: Partial<CacheLimits> = {},
    clock: Clock = systemClock,
  ) {
    this.#resolver = resolver;
    this.#limits = { ...defaultCacheLimits, ...limits };
    this.#clock = clock;
    this.#known = new LRUCache({ maxSize: this.#limits.entries, sizeCalculation: entriesOf });
  }

  resolveMx: Resolver['resolveMx'] = (name, options) =>
    this.#look('resolveMx', name, options, () => this.#resolver.resolveMx(name));
  resolve4: Resolver['resolve4'] = (name, options) =>
    this.#look('resolve4', name, options, () => this.#resolver.resolve4(name));
  resolve6: Resolver['resolve6'] = (name, options) =>
    this.#look('resolve6', name, options, () => this.#resolver.resolve6(name));
  resolveTxt: Resolver['resolveTxt'] = (name, options) =>
    this.#look('resolveTxt', name, options, () => this.#resolver.resolveTxt(name));
  resolvePtr: Resolver['resolvePtr'] = (address, options) =>
    this.#look('resolvePtr', address, options, () => this.#resolver.resolvePtr(address));
  resolveTlsa: SecureResolver['resolveTlsa'] = (name, options) =>
    this.#look('resolveTlsa', name, options, async () => this.#resolver.resolveTlsa?.(name) ?? unknown(name));
  resolveCname: SecureResolver['resolveCname'] = (name, options) =>
    this.#look('resolveCname', name, options, async () => this.#resolver.resolveCname?.(name) ?? unknown(name));

  async #look<T>(
    question: Question,
    name: string,
    { signal, fresh = false }: LookupOptions = {},
    ask: () => Promise<DnsResponse<T>>,
  ): Promise<DnsResponse<T>> {
    const key = `${question} ${name.toLowerCase()}`;
    const known = fresh ? undefined : this.#known.get(key);
    const good = known !== undefined && this.#clock.monotonic() < known.until;
    const found = good ? known : await unlessAborted(this.#ask(key, ask), signal, key);
    if ('failure' in found) throw found.failure;
    // The key names the query, so the answer has its type.
    return found.answer as DnsResponse<T>;
  }

  #ask(key: string, ask: () => Promise<DnsResponse<unknown>>): Promise<Known> {
    const asked = this.#asked.get(key);
    if (asked !== undefined) return asked;
    const asking = this.#learn(key, ask).finally(() => this.#asked.delete(key));
    this.#asked.set(key, asking);
    return asking;
  }

  async #learn(key: string, ask: () => Promise<DnsResponse<unknown>>): Promise<Known> {
    const known = await ask().then(
      (answer): Known => ({ until: this.#until(this.#secondsOf(answer)), answer }),
      (error: unknown): Known => {
        const failure = isDnsFailure(error) ? error : dnsFailure('servfail', key, error);
        return { until: this.#until(this.#secondsOfFailure(failure)), failure };
      },
    );
    this.#known.set(key, known);
    return known;
  }

  #secondsOf({ ttl }: DnsResponse<unknown>): number {
    const { minSeconds, maxSeconds, unknownSeconds } = this.#limits;
    return ttl === undefined ? unknownSeconds : Math.min(maxSeconds, Math.max(minSeconds, ttl));
  }

  #secondsOfFailure({ kind }: DnsFailure): number {
    if (kind === 'nxdomain' || kind === 'nodata') return this.#limits.negativeSeconds;
    return kind === 'aborted' ? 0 : this.#limits.failureSeconds;
  }

  #until(seconds: number): number {
    return this.#clock.monotonic() + seconds * 1000;
  }
}

function unknown(name: string): never {
  throw dnsFailure('servfail', name);
}

/** Memory that one entry of the cache stands for, in bytes, roughly. */
const entryBytes = 1000;

/** Name servers of other people may send answers of any size. */
function entriesOf(known: Known): number {
  if ('failure' in known) return 1;
  const bytes = known.answer.records.reduce<number>((sum, record) => sum + 40 + textOf(record).length, 0);
  return 1 + Math.floor(bytes / entryBytes);
}

const textOf = (record: unknown): string => (typeof record === 'string' ? record : JSON.stringify(record));

/** The query continues for the other callers that wait for it. */
function unlessAborted<T>(asking: Promise<T>, signal: AbortSignal | undefined, question: string): Promise<T> {
  if (signal === undefined) return asking;
  if (signal.aborted) return Promise.reject(dnsFailure('aborted', question));
  return new Promise((resolve, reject) => {
    const aborted = (): void => reject(dnsFailure('aborted', question));
    signal.addEventListener('abort', aborted, { once: true });
    asking.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted));
  });
}
