import { service } from '../host/service.js';

/** Something that a plugin did not do as it should. */
export interface PluginFault {
  /** ISO 8601. */
  readonly at: string;
  /** `load`, `setup`, `hook rcptTo`, `watcher delivered`, `timer`. */
  readonly where: string;
  /** Its message, secrets masked. */
  readonly message: string;
}

/** A plugin of a server that runs. */
export interface PluginState {
  readonly name: string;
  /** The element of `sitePlugins` that brought it; null for one that comes with the server. */
  readonly from: string | null;
  /** `shadow`: it runs, and its verdicts are only written down. `replaced`: a plugin of the site runs in its place. */
  readonly state: 'running' | 'shadow' | 'failed' | 'replaced';
  /** Version of the plugin kit it is written for. */
  readonly kit: string;
  /** When it came into this state, ISO 8601: loaded, reloaded, failed. */
  readonly since: string;
  /** How many versions of its code are in memory; zero for what comes with the server. */
  readonly versions: number;
  readonly hooks: number;
  /** Ids of the services that it needs, that it takes when they are there, and that it lends. */
  readonly needs: readonly string[];
  readonly uses: readonly string[];
  readonly provides: readonly string[];
  /** Names of its delivery targets. */
  readonly targets: readonly string[];
  /** Since it came into this state. */
  readonly faults: number;
  readonly lastFault: PluginFault | null;
  /** Why only a restart brings its newest code or options into force; null when they are in force. */
  readonly waiting: string | null;
  /** What it uses that a later version of the kit will not have, a sentence each. */
  readonly deprecated: readonly string[];
}

/** The plugins of this server, and how they do. */
export interface PluginsOverview {
  /** In the order of their start; those that failed, and those that were replaced, behind them. */
  plugins(): readonly PluginState[];
}

export const pluginsOverview = service<PluginsOverview>('postern.plugins');
