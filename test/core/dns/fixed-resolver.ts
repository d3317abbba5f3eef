import {
  type DnsResponse,
  dnsFailure,
  type DnsFailureKind,
  type LookupOptions,
  type MxRecord,
  type Resolver,
} from '../../../core/dns/resolver.js';

type Given<T> = readonly T[] | DnsFailureKind;

export interface FixedName {
  readonly mx?: Given<readonly [preference: number, exchange: string]>;
  readonly a?: Given<string>;
  readonly aaaa?: Given<string>;
  readonly txt?: Given<string>;
}

/** Knows what it is given; every other name does not exist. */
export class FixedResolver implements Resolver {
  readonly questions: string[] = [];
  readonly names: Record<string, FixedName>;
  ttl: number | undefined = 300;

  constructor(names: Record<string, FixedName>) {
    this.names = names;
  }

  resolveMx(name: string, options?: LookupOptions): Promise<DnsResponse<MxRecord>> {
    return this.#answer('MX', name, this.names[name]?.mx, options).then(({ ttl, records }) => ({
      ttl,
      records: records.map(([preference, exchange]) => ({ preference, exchange })),
    }));
  }

  resolve4(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#answer('A', name, this.names[name]?.a, options);
  }

  resolve6(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#answer('AAAA', name, this.names[name]?.aaaa, options);
  }

  resolveTxt(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#answer('TXT', name, this.names[name]?.txt, options);
  }

  resolvePtr(name: string): Promise<DnsResponse<string>> {
    return this.#answer('PTR', name, undefined);
  }

  #answer<T>(
    type: string,
    name: string,
    given: Given<T> | undefined,
    options?: LookupOptions,
  ): Promise<DnsResponse<T>> {
    this.questions.push(`${type} ${name}${options?.fresh === true ? ' fresh' : ''}`);
    const kind = typeof given === 'string' ? given : name in this.names ? 'nodata' : 'nxdomain';
    if (given === undefined || typeof given === 'string') return Promise.reject(dnsFailure(kind, `${type} ${name}`));
    return Promise.resolve({ records: given, ttl: this.ttl });
  }
}
