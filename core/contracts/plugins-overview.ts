import { service } from './service.js';

/** A fault of a plugin. */
export interface PluginFault {
  /** ISO 8601. */
  readonly at: string;
  /** `load`, `setup`, `hook rcptTo`, `watcher delivered`, `timer`. */
  readonly where: string;
  /** Its message, secrets masked. */
  readonly message: string;
}

/** A plugin of the running server. */
export interface PluginState {
  readonly name: string;
  /** The element of `sitePlugins` that loaded it; null for a built-in plugin. */
  readonly from: string | null;
  /** `shadow`: it runs, but its verdicts are only recorded. `replaced`: a plugin of the site runs instead. */
  readonly state: 'running' | 'shadow' | 'failed' | 'replaced';
  /** Version of the plugin kit that it is written for. */
  readonly kit: string;
  /** When it entered this state, ISO 8601: loaded, reloaded, failed. */
  readonly since: string;
  /** Versions of its code in memory; zero for a built-in plugin. */
  readonly versions: number;
  readonly hooks: number;
  /** Ids of the services that it needs, uses if present, and provides. */
  readonly needs: readonly string[];
  readonly uses: readonly string[];
  readonly provides: readonly string[];
  /** Names of its delivery targets. */
  readonly targets: readonly string[];
  /** Since it entered this state. */
  readonly faults: number;
  readonly lastFault: PluginFault | null;
  /** Why only a restart applies its newest code or options; null when they are in force. */
  readonly waiting: string | null;
  /** Deprecations that it uses, one sentence each. */
  readonly deprecated: readonly string[];
}

/** The plugins of this server and their state. */
export interface PluginsOverview {
  /** In the order of their start; failed and replaced ones last. */
  plugins(): readonly PluginState[];
}

export const pluginsOverview = service<PluginsOverview>('postern.plugins');
