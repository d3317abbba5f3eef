import { service } from './service.js';

/** What is written down of HTTP calls. It lies in files, unless a plugin provides it from elsewhere. */

/** One line of the audit log, as written. */
export interface AuditEntry {
  readonly at: string;
  readonly by: string | null;
  readonly from: string;
  /** The node of a cluster that the account had asked, where another one has answered. */
  readonly via?: string;
  readonly requestId: string;
  readonly method: string;
  readonly route: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly status: number;
  readonly action?: string;
  readonly selector?: unknown;
  readonly counts?: Readonly<Record<string, number>>;
  /** The server of a cluster that it was made at; not in the files, which are of one server. */
  readonly node?: string;
}

/** The path as requested. */
export const requestedPath = ({ route, params }: Pick<AuditEntry, 'route' | 'params'>): string =>
  route.replace(/\{([^}]+)\}/g, (_, name: string) => {
    const value = params[name];
    return typeof value === 'string' ? value : `{${name}}`;
  });

export interface AuditQuery {
  /** Name of a server of a cluster. */
  readonly node?: string | undefined;
  readonly who?: string | undefined;
  readonly from?: string | undefined;
  readonly method?: string | undefined;
  /** Part of the path with its parameters. */
  readonly path?: string | undefined;
  readonly action?: string | undefined;
  /** Carried out, or refused. */
  readonly result?: 'done' | 'refused' | undefined;
  /** ISO 8601, inclusive. */
  readonly since?: string | undefined;
  /** ISO 8601, exclusive. */
  readonly until?: string | undefined;
  readonly limit: number;
  readonly cursor?: string | undefined;
}

export interface AuditPage {
  /** Newest first, secrets masked. */
  readonly items: readonly AuditEntry[];
  /** Number of all matches; null when the log is too long to count. */
  readonly total: number | null;
  readonly limit: number;
  readonly nextCursor: string | null;
}

/** Reads what every server of a cluster has written to its audit log. */
export interface AuditReader {
  /** Name of this server among them. */
  readonly node: string;
  /** @throws Problem `bad-request` for an invalid cursor; `unavailable`: then the files of this server are shown */
  read(query: AuditQuery): Promise<AuditPage>;
}
export const auditReader = service<AuditReader>('postern.audit-reader');

/** A response as it was sent. */
export interface KeptAnswer {
  /** Of the request: the same key with another payload is a mistake. */
  readonly fingerprint: string;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/**
 * Responses by Idempotency-Key, for a day. A response is kept before it is sent, and only when the work was done: a
 * refused client may reuse its key. Keys are hexadecimal digests.
 */
export interface KeptAnswers {
  /** The release, which never rejects; undefined while another request has the key. @throws Problem `unavailable` */
  claim(key: string): Promise<(() => Promise<void>) | undefined>;
  /** Called by the holder of a claim. */
  find(key: string): Promise<KeptAnswer | undefined>;
  /** Called by the holder of a claim. Never rejects: the work is done, and its response is sent in any case. */
  keep(key: string, answer: KeptAnswer): Promise<void>;
}
export const keptAnswers = service<KeptAnswers>('postern.kept-answers');
