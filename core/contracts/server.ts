import type { ComponentHealth, HealthState } from '../host/health.js';
import type { EndpointDescription } from '../http/endpoint.js';
import type { HookDescription } from '../pipeline/hook.js';
import { service } from '../host/service.js';

/** What core lends to every plugin that asks: each is a token to name in `needs`. */

export type Origin = 'default' | 'file' | 'environment' | 'command line' | 'generated';

export interface EffectiveValue {
  /** Path of the key: `smtp.listeners.0.port`. */
  readonly key: string;
  /** The value, or `"••••"` for a secret. */
  readonly value: unknown;
  readonly origin: Origin;
  /** File and line when the origin is a file, the name of the variable when it is the environment. */
  readonly where: string | null;
  readonly default: unknown;
  readonly description: string | null;
  readonly secret: boolean;
  /** Another value was in force when the server started: that one. */
  readonly atStart?: unknown;
  /** The files say something else by now, which only a restart brings into force: that value. */
  readonly pending?: unknown;
}

/** A configuration file as it was read, secrets masked. */
export interface ConfigurationFile {
  readonly path: string;
  readonly text: string;
}

/** Code that a reload looks at. */
export interface WatchedCode {
  /** Absolute paths of the folders that hold it. */
  readonly folders: readonly string[];
  /** Differs when a file of it does. */
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
  /** Name servers that are configured for the whole server; none: those of the system. */
  readonly nameServers?: readonly string[];
  /** The largest message that is taken, in bytes. */
  readonly messageBytes?: number;
  /** SMTP sessions that may be open at once, over all listeners. */
  readonly maxSessions?: number;
  /** Every key with value, origin and description; secrets masked. */
  effective(): readonly EffectiveValue[];
  /** The files that the configuration was read from. */
  files?(): readonly ConfigurationFile[];
  /**
   * The values are read anew by whoever asks; a watcher is for those who keep what they made of them. It runs when a reload
   * has put new values into force; when it throws, the reload is taken back and it runs again. Returns the undo.
   */
  watch?(watcher: () => void | Promise<void>): () => void;
  /** The code of the plugins of the site, as it is on disk now. */
  code?(): Promise<WatchedCode>;
}
export const configuration = service<Configuration>('postern.configuration');

export interface Difference {
  readonly key: string;
  /** Values as they may be shown; null where there is none. */
  readonly before: unknown;
  readonly after: unknown;
  /** Only a restart brings it into force. */
  readonly restart: boolean;
  /** Of a plugin that waits for a restart: why, as a sentence. */
  readonly why?: string;
}

export interface ReloadOutcome {
  readonly status: 'reloaded' | 'unchanged' | 'dryRun';
  /** Keys whose new values are in force, or would be. */
  readonly changed: readonly string[];
  /** Keys that differ from what the server started with and wait for a restart. */
  readonly restartRequired: readonly string[];
  readonly differences: readonly Difference[];
  /** Plugins of the site that failed just as before: no version of them runs. */
  readonly failed: readonly { readonly plugin: string; readonly why: string }[];
}

/** How the last reload ended; a dry run is none. */
export interface LastReload {
  readonly at: string;
  /** Who asked: an account, `SIGHUP`, `file watch`, `sync`. */
  readonly by: string;
  /** Why it was refused; null when it was not. */
  readonly refused: string | null;
}

/** A configuration file that lies below the operator's own: what that one does not set counts from here. */
export interface LayerFile {
  /** As it is named in messages: `base.json5`, `mail1/tls.json5`. */
  readonly name: string;
  readonly text: string;
}

export interface ReloadRequest {
  readonly by: string;
  readonly dryRun?: boolean;
  /** Nobody asked over HTTP, where the audit log is written: then the reload writes its own line. */
  readonly unasked?: boolean;
  /** Layers in place of those on disk, the lowest first; `keep` writes them there and resolves with the way back. */
  readonly layers?: { readonly files: readonly LayerFile[]; keep(): Promise<() => Promise<void>> };
}

/** Brings a changed configuration into force while the server runs. */
export interface Reloading {
  /**
   * All or nothing. @throws Problem `invalid` with every mistake and its place, or the plugin that refused; `conflict` while
   * another one runs
   */
  reload(request: ReloadRequest): Promise<ReloadOutcome>;
  last(): LastReload | null;
}
export const reloading = service<Reloading>('postern.reloading');

export interface HealthOverview {
  status(): HealthState;
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

/** The prom-client registry behind `metrics`, to be exposed. */
export interface MetricsExposition {
  /** Every sample as it is now, for other formats. */
  collect(): Promise<readonly MetricFamily[]>;
  /** Prometheus text format 0.0.4, or OpenMetrics 1.0. */
  render(format: 'prometheus' | 'openmetrics'): Promise<{ readonly body: string; readonly contentType: string }>;
}
export const metricsExposition = service<MetricsExposition>('postern.metrics');

/** What is mounted, for the landing page and the like. */
export interface Catalogue {
  endpoints(): readonly EndpointDescription[];
  hooks(): readonly HookDescription[];
  /** Where mail can come in right now: the ports as bound. Without it the ports are shown as configured. */
  listeners?(): readonly { readonly name: string; readonly host: string; readonly port: number }[];
}
export const catalogue = service<Catalogue>('postern.catalogue');
