import { LRUCache } from 'lru-cache';
import { systemClock, type Clock } from '../clock.js';
import {
  type Answer,
  dnsFailure,
  type DnsFailure,
  isDnsFailure,
  type LookupOptions,
  type MxRecord,
  type Resolver,
} from './resolver.js';

export interface CacheLimits {
  /** Bounds for the time that records say, in seconds. */
  readonly leastSeconds: number;
  readonly mostSeconds: number;
  /** For records whose time is not known. */
  readonly unknownSeconds: number;
  /** How long it is remembered that there is no such name or record. */
  readonly negativeSeconds: number;
  /** How long it is remembered that nobody could be asked: so short that it only spares the server. */
  readonly failureSeconds: number;
  /** Answers of the usual size; one that is larger takes the place of several. */
  readonly entries: number;
}

export const usualCacheLimits: CacheLimits = {
  leastSeconds: 5,
  mostSeconds: 3600,
  unknownSeconds: 300,
  negativeSeconds: 60,
  failureSeconds: 5,
  entries: 10_000,
};

type Known =
  | { readonly until: number; readonly answer: Answer<unknown> }
  | { readonly until: number; readonly failure: DnsFailure };

type Question = 'resolveMx' | 'resolve4' | 'resolve6' | 'resolveTxt' | 'resolvePtr';

/** Remembers what another resolver says, and asks it each question once at a time. */
export class CachingResolver implements Resolver {
  readonly #resolver: Resolver;
  readonly #limits: CacheLimits;
  readonly #clock: Clock;
  readonly #known: LRUCache<string, Known>;
  /** Asked at this moment. */
  readonly #asked = new Map<string, Promise<Known>>();

  constructor(resolver: Resolver, limits: Partial<CacheLimits> = {}, clock: Clock = systemClock) {
    this.#resolver = resolver;
    this.#limits = { ...usualCacheLimits, ...limits };
    this.#clock = clock;
    this.#known = new LRUCache({ maxSize: this.#limits.entries, sizeCalculation: placesOf });
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

  async #look<T>(
    question: Question,
    name: string,
    { signal, fresh = false }: LookupOptions = {},
    ask: () => Promise<Answer<T>>,
  ): Promise<Answer<T>> {
    const key = `${question} ${name.toLowerCase()}`;
    const known = fresh ? undefined : this.#known.get(key);
    const good = known !== undefined && this.#clock.monotonic() < known.until;
    const found = good ? known : await unlessAborted(this.#ask(key, ask), signal, key);
    if ('failure' in found) throw found.failure;
    // The key says which question this answers.
    return found.answer as Answer<T>;
  }

  #ask(key: string, ask: () => Promise<Answer<unknown>>): Promise<Known> {
    const asked = this.#asked.get(key);
    if (asked !== undefined) return asked;
    const asking = this.#learn(key, ask).finally(() => this.#asked.delete(key));
    this.#asked.set(key, asking);
    return asking;
  }

  async #learn(key: string, ask: () => Promise<Answer<unknown>>): Promise<Known> {
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

  #secondsOf({ ttl }: Answer<unknown>): number {
    const { leastSeconds, mostSeconds, unknownSeconds } = this.#limits;
    return ttl === undefined ? unknownSeconds : Math.min(mostSeconds, Math.max(leastSeconds, ttl));
  }

  #secondsOfFailure({ kind }: DnsFailure): number {
    if (kind === 'nxdomain' || kind === 'nodata') return this.#limits.negativeSeconds;
    return kind === 'aborted' ? 0 : this.#limits.failureSeconds;
  }

  #until(seconds: number): number {
    return this.#clock.monotonic() + seconds * 1000;
  }
}

/** Bytes of the memory, about, that one place stands for. */
const placeBytes = 1000;

/** Name servers of strangers may answer with as much as they like. */
function placesOf(known: Known): number {
  if ('failure' in known) return 1;
  const bytes = known.answer.records.reduce<number>((sum, record) => sum + 40 + textOf(record).length, 0);
  return 1 + Math.floor(bytes / placeBytes);
}

const textOf = (record: unknown): string => (typeof record === 'string' ? record : (record as MxRecord).exchange);

/** The question goes on for those who asked it too. */
function unlessAborted<T>(asking: Promise<T>, signal: AbortSignal | undefined, question: string): Promise<T> {
  if (signal === undefined) return asking;
  if (signal.aborted) return Promise.reject(dnsFailure('aborted', question));
  return new Promise((resolve, reject) => {
    const aborted = (): void => reject(dnsFailure('aborted', question));
    signal.addEventListener('abort', aborted, { once: true });
    asking.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted));
  });
}
