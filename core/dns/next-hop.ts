import type { Dane } from '../net/tlsa.js';

/** One address of a server that accepts mail for a domain. */
export interface NextHop {
  /** Host name as in the MX record or the route, or an IP address; used for SNI, certificates and display. */
  readonly host: string;
  /** IP address to dial. */
  readonly address: string;
  readonly preference: number;
  /** What TLSA records demand of the server (RFC 7672). */
  readonly dane?: Dane;
}

/** The servers to try, best first. */
export interface FoundHops {
  readonly outcome: 'found';
  /**
   * The sorted names of all servers of the domain. Domains with the same servers share limits and health under this
   * key.
   */
  readonly site: string;
  readonly hops: readonly NextHop[];
  /** Deliver only over TLS with a certificate that is valid for the host (RFC 8461). */
  readonly mustVerify?: boolean;
  /** Servers left out because it cannot be known whether they have TLSA records. */
  readonly skipped?: readonly string[];
}

/** Why there is no route. `code`, `status` and `text` may be used in a DSN. */
export interface NoRoute {
  readonly outcome: 'failed';
  readonly reason: 'null-mx' | 'no-domain' | 'no-address' | 'loop' | 'private' | 'dns' | 'policy' | 'aborted';
  readonly code: number;
  /** Enhanced status code (RFC 3463). */
  readonly status: string;
  readonly text: string;
  readonly permanent: boolean;
  /** As in `FoundHops`. */
  readonly skipped?: readonly string[];
}

export type HopSearch = FoundHops | NoRoute;

export interface SearchOptions {
  readonly signal?: AbortSignal;
  /** Allows private, loopback and link-local addresses. */
  readonly allowPrivate?: boolean;
  /**
   * Called when the servers of a domain are known; returns which of them may receive its mail (RFC 8461 §5), undefined
   * for all.
   */
  readonly allowed?: () => Promise<((host: string) => boolean) | undefined>;
}

/** Finds the servers of a domain (RFC 5321 §5.1). Never rejects. */
export interface HopFinder {
  /** `domain` in A-labels, or an address literal in brackets. */
  forDomain(domain: string, options?: SearchOptions): Promise<HopSearch>;
  /**
   * Resolves the hosts of a route, names or IP addresses with or without brackets, in the given order, without MX
   * lookups.
   */
  forHosts(hosts: readonly string[], options?: SearchOptions): Promise<HopSearch>;
}
