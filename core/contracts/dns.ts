import { service } from './service.js';

/** A mail server of a domain; `exchange` is empty for a null MX (RFC 7505). */
export interface MxAnswer {
  readonly exchange: string;
  readonly priority: number;
}

/** Records of each type, as in `node:dns`. */
export interface DnsRecords {
  readonly A: string;
  readonly AAAA: string;
  readonly MX: MxAnswer;
  /** The strings of one record; most have one. */
  readonly TXT: readonly string[];
  /** Names of an address. The query is the address itself, or its name below `in-addr.arpa` or `ip6.arpa`. */
  readonly PTR: string;
}
export type DnsType = keyof DnsRecords;

/** An answer as data. `nodata` and `nxdomain` are answers; `failed` means that no name server answered in time. */
export type DnsAnswer<T extends DnsType = DnsType> =
  | { readonly status: 'found'; readonly records: readonly DnsRecords[T][] }
  | { readonly status: 'nodata' | 'nxdomain'; readonly records: readonly [] }
  | { readonly status: 'failed'; readonly records: readonly []; readonly reason: 'servfail' | 'timeout' | 'aborted' };

export interface DnsQuestionOptions {
  /** Aborts the query; the answer is then `failed`, `aborted`. */
  readonly signal?: AbortSignal;
}

/**
 * DNS for plugins: one bounded cache, equal queries joined, at most 5 seconds each. Names may be internationalized and
 * may end with a dot; an invalid name is `nxdomain`, without a query.
 */
export interface Dns {
  /** Never rejects. */
  lookup<T extends DnsType>(name: string, type: T, options?: DnsQuestionOptions): Promise<DnsAnswer<T>>;
  /**
   * The same as `resolve` of `node:dns/promises`, for libraries that want a resolver: it resolves with the records, at
   * least one, or rejects with an error whose `code` is `ENOTFOUND`, `ENODATA`, `ESERVFAIL`, `ETIMEOUT` or
   * `ECANCELLED`. It is bound: `authenticate(message, { resolver: dns.resolve })`.
   */
  readonly resolve: (name: string, type: string) => Promise<DnsRecords[DnsType][]>;
}

export const dns = service<Dns>('postern.dns');
