/** A server that takes the mail of a domain, by one of its addresses. */
export interface NextHop {
  /** Name as the MX record or the route has it, or an IP address; for SNI, certificates and what people read. */
  readonly host: string;
  /** IP address to dial. */
  readonly address: string;
  readonly preference: number;
}

/** Where to send, best first. */
export interface FoundHops {
  readonly outcome: 'found';
  /** What domains with the same servers share: the sorted names of all of them. Limits and health belong to it. */
  readonly site: string;
  readonly hops: readonly NextHop[];
  /** The domain wants its mail under TLS with a certificate good for the host, or not at all (RFC 8461). */
  readonly mustVerify?: boolean;
}

/** Why there is no way. `code`, `status` and `text` can stand in a DSN. */
export interface NoRoute {
  readonly outcome: 'failed';
  readonly reason: 'null-mx' | 'no-domain' | 'no-address' | 'loop' | 'private' | 'dns' | 'policy' | 'aborted';
  readonly code: number;
  /** Enhanced status code (RFC 3463). */
  readonly status: string;
  readonly text: string;
  readonly permanent: boolean;
}

export type HopSearch = FoundHops | NoRoute;

export interface SearchOptions {
  readonly signal?: AbortSignal;
  /** Lets private, loopback and link-local addresses pass. */
  readonly allowPrivate?: boolean;
  /** Asked for once the servers of a domain are known: which of them may get its mail (RFC 8461 §5); all of them when undefined. */
  readonly allowed?: () => Promise<((host: string) => boolean) | undefined>;
}

/** Finds the servers for a domain (RFC 5321 §5.1). Never rejects. */
export interface HopFinder {
  /** `domain` in A-labels, or an address literal in brackets. */
  forDomain(domain: string, options?: SearchOptions): Promise<HopSearch>;
  /** Servers that a route names: host names or IP addresses, with or without brackets, tried in this order; no MX is asked. */
  forHosts(hosts: readonly string[], options?: SearchOptions): Promise<HopSearch>;
}
