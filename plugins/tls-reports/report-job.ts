import type { ReportedDomain } from './report.js';

/** One mail that may hold a report, and what is needed to read it in a thread without a network. */
export interface ReportJob {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Domain of the one author. */
  readonly author: string;
  readonly keys: SigningKeys;
  /** Local domains. */
  readonly domains: readonly string[];
  /** Reports about this many of them are passed on. */
  readonly maxReported: number;
}

/** TXT records of keys (RFC 6376 §3.6.2), by name in lower case. */
export type SigningKeys = ReadonlyMap<string, readonly (readonly string[])[]>;

/** `foreign`: it is about no local domain. */
export type ReportResult =
  | { readonly outcome: 'unsigned' | 'foreign' }
  | { readonly outcome: 'signed'; readonly submitter: string; readonly reported: readonly ReportedDomain[] };

/** Whether a domain may sign for the domain of an author. */
export const maySignFor = (author: string, domain: string): boolean =>
  author === domain || author.endsWith(`.${domain}`);
