import type { Account } from './accounts.js';
import type { HookDescription } from '../pipeline/hook.js';
import type { ComponentHealth, HealthState } from './health.js';
import { service } from './service.js';

/** The landing page's view of an endpoint. */
export interface EndpointDescription {
  readonly plugin: string;
  readonly method: string;
  readonly path: string;
  readonly summary: string;
  readonly group: string;
  /** Effective, after the access rules of the configuration. */
  readonly access: string;
  /** `html`, `json`, `events`, … */
  readonly formats: readonly string[];
  readonly curl: string;
  /** Fragment of the docs page: `/docs#<anchor>`. */
  readonly anchor: string;
  readonly hidden: boolean;
}

export type Origin = 'default' | 'file' | 'environment' | 'command line' | 'generated';

export interface EffectiveValue {
  /** Path of the key: `smtp.listeners.0.port`. */
  readonly key: string;
  /** The value, or `"••••"` for a secret. */
  readonly value: unknown;
  readonly origin: Origin;
  /** File and line when the origin is a file, the variable when it is the environment. */
  readonly where: string | null;
  readonly default: unknown;
  readonly description: string | null;
  readonly secret: boolean;
  /** The value at the start of the server, if it was another one. */
  readonly atStart?: unknown;
  /** The value in the files, if only a restart can apply it. */
  readonly pending?: unknown;
}

/** A configuration file as it was read, secrets masked. */
export interface ConfigurationFile {
  readonly path: string;
  readonly text: string;
}

/** A configuration file that is not applied. */
export interface ReviewedLayer {
  /** Secrets masked. */
  readonly text: string;
  /** Keys with a secret in clear text instead of `{env: …}` or `{file: …}`. */
  readonly secrets: readonly string[];
  /** Its top keys, and those of its plugins: `smtp`, `plugins.users`. */
  readonly keys: readonly string[];
}

/** Code that a reload looks at. */
export interface WatchedCode {
  /** Absolute paths of the folders that contain it. */
  readonly folders: readonly string[];
  /** Differs when one of its files does. */
  readonly digest: string;
}

/** The effective configuration: frozen, validated, secrets resolved. */
export interface Configuration {
  /** The file, or null when the server runs on defaults. */
  readonly file: string | null;
  readonly hostname: string;
  /** Absolute path of the data folder. */
  readonly data: string;
  /** Local domains, canonical. */
  readonly domains: readonly string[];
  readonly relayNetworks: readonly string[];
  /** Configured name servers of the server; empty: those of the system. */
  readonly nameServers?: readonly string[];
  /** Maximum message size in bytes. */
  readonly messageBytes?: number;
  /** Bytes that all files of the audit log may have together. */
  readonly auditBytes?: number;
  /** Maximum concurrent SMTP sessions, over all listeners. */
  readonly maxSessions?: number;
  /** Every key with value, origin and description; secrets masked. */
  effective(): readonly EffectiveValue[];
  /** The files that the configuration was read from. */
  files?(): readonly ConfigurationFile[];
  /** What a text that may become a layer would be, by the schema of this server. @throws Problem `invalid` */
  review?(name: string, text: string): ReviewedLayer;
  /**
   * Callers read the values anew; a watcher is for those who keep what they derive. It runs when a reload has applied
   * new values; when it throws, the reload is rolled back and it runs again. Returns the undo.
   */
  watch?(watcher: () => void | Promise<void>): () => void;
  /** The code of the site plugins, as it is on disk now. */
  code?(): Promise<WatchedCode>;
}
export const configuration = service<Configuration>('postern.configuration');

export interface Difference {
  readonly key: string;
  /** Values for display; null where there is none. */
  readonly before: unknown;
  readonly after: unknown;
  /** Only a restart applies it. */
  readonly restart: boolean;
  /** Of a plugin that waits for a restart: why, as a sentence. */
  readonly why?: string;
}

export interface ReloadOutcome {
  readonly status: 'reloaded' | 'unchanged' | 'dryRun';
  /** Keys whose new values are in force, or would be. */
  readonly changed: readonly string[];
  /** Keys that differ from those at the start and wait for a restart. */
  readonly restartRequired: readonly string[];
  readonly differences: readonly Difference[];
  /** Site plugins that failed just as before: no version of them runs. */
  readonly failed: readonly { readonly plugin: string; readonly why: string }[];
}

/** How the last reload ended; dry runs do not count. */
export interface LastReload {
  readonly at: string;
  /** Origin: an account, `SIGHUP`, `file watch`, `sync`. */
  readonly by: string;
  /** Why it was refused; else null. */
  readonly refused: string | null;
}

/** A configuration file below the operator's own, which overrides it. */
export interface LayerFile {
  /** Its name in messages: `base.json5`, `mail1/tls.json5`. */
  readonly name: string;
  readonly text: string;
}

export interface ReloadRequest {
  readonly by: string;
  readonly dryRun?: boolean;
  /** Not requested over HTTP, where the audit log is written: the reload writes its own line. */
  readonly unasked?: boolean;
  /** Layers that replace those on disk, the lowest first; `keep` writes them and resolves with the undo. */
  readonly layers?: { readonly files: readonly LayerFile[]; keep(): Promise<() => Promise<void>> };
}

/** Applies a changed configuration while the server runs. */
export interface Reloading {
  /**
   * All or nothing. @throws Problem `invalid` with every mistake and its position, or the plugin that refused;
   * `conflict` while another one runs
   */
  reload(request: ReloadRequest): Promise<ReloadOutcome>;
  last(): LastReload | null;
}
export const reloading = service<Reloading>('postern.reloading');

export interface HealthOverview {
  status(): HealthState;
  /** Another number after another component or state was seen. */
  readonly changes: number;
  /** Seconds since start. */
  uptime(): number;
  components(): Readonly<Record<string, ComponentHealth>>;
}
export const healthOverview = service<HealthOverview>('postern.health');

export interface MetricSample {
  /** With the suffix of a histogram: `…_bucket`, `…_sum`, `…_count`. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

export interface MetricFamily {
  readonly name: string;
  readonly samples: readonly MetricSample[];
}

/** The prom-client registry behind `metrics`. */
export interface MetricsExposition {
  /** Every current sample, for other formats. */
  collect(): Promise<readonly MetricFamily[]>;
  /** Prometheus text format 0.0.4, or OpenMetrics 1.0. */
  render(format: 'prometheus' | 'openmetrics'): Promise<{ readonly body: string; readonly contentType: string }>;
}
export const metricsExposition = service<MetricsExposition>('postern.metrics');

/** The mounted endpoints, for the landing page and others. */
export interface Catalogue {
  endpoints(): readonly EndpointDescription[];
  hooks(): readonly HookDescription[];
  /** True when there is a GET of that path that the account may call, by the access rules in force. */
  mayOpen(account: Account | null, path: string): boolean;
  /** Bound ports of the SMTP listeners. Without it the configured ports are shown. */
  listeners?(): readonly { readonly name: string; readonly host: string; readonly port: number }[];
}
export const catalogue = service<Catalogue>('postern.catalogue');

/**
 * Calls the running server over HTTP with the role `admin` and JSON. Resolves for statuses of 400 and more, too.
 *
 * @param path absolute, its parameters already encoded: `/users/anna%40example.org`
 * @throws start error when the server cannot be reached
 */
export type OwnerCall = (
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  body?: unknown,
) => Promise<OwnerAnswer>;

export interface OwnerAnswer {
  readonly status: number;
  /** Parsed JSON, a problem document when the status is 400 or more; the text of an answer that has no JSON. */
  readonly body: unknown;
}

/** For what must end when the server is told to stop, before it has stopped. */
export interface Lifecycle {
  /** Aborted as soon as the server accepts no more mail; running sessions and requests still finish. */
  readonly stopping: AbortSignal;
  /** Milliseconds left for running work: one deadline for the whole stop. Infinity before it. */
  remainingMs(): number;
  /** Resolves when mail may be accepted: all plugins run, and messages left in the spool by a crash are restored. */
  readonly started: Promise<void>;
}
export const lifecycle = service<Lifecycle>('postern.lifecycle');
