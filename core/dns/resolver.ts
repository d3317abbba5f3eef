export interface MxRecord {
  /** Without a dot at its end; empty for a null MX (RFC 7505). */
  readonly exchange: string;
  readonly preference: number;
}

export interface LookupOptions {
  readonly signal?: AbortSignal;
  /** Asks again even if the answer is known. */
  readonly fresh?: boolean;
}

/** An answer and for how many seconds it may be kept; undefined where that is not known. */
export interface Answer<T> {
  readonly records: readonly T[];
  readonly ttl: number | undefined;
}

/**
 * Asks the DNS. Names are ASCII without a dot at their end. Every lookup resolves with at least one record or rejects with a
 * `DnsFailure`. Injectable: relay, proxy and checks of senders take whatever fulfils this.
 */
export interface Resolver {
  resolveMx(name: string, options?: LookupOptions): Promise<Answer<MxRecord>>;
  resolve4(name: string, options?: LookupOptions): Promise<Answer<string>>;
  resolve6(name: string, options?: LookupOptions): Promise<Answer<string>>;
  /** One element for each record, its strings joined. */
  resolveTxt(name: string, options?: LookupOptions): Promise<Answer<string>>;
  /** Names of an IP address. */
  resolvePtr(address: string, options?: LookupOptions): Promise<Answer<string>>;
}
