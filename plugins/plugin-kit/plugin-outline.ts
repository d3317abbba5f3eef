import type { App } from '../../core/app.js';
import type { Plugin } from '../../core/plugin.js';
import { tokenIds } from '../../core/host/plugin-set.js';
import type { HookDescription } from '../../core/pipeline/hook.js';

/** One plugin of a server, as `postern plugin check` and `list` show it. */
export interface PluginOutline {
  readonly name: string;
  /** Ids of services. */
  readonly needs: readonly string[];
  readonly uses: readonly string[];
  readonly provides: readonly string[];
  readonly commands: readonly string[];
  /** In the order they are asked. */
  readonly hooks: readonly Pick<HookDescription, 'stage' | 'phase' | 'mode'>[];
  /** Names of its delivery targets. */
  readonly targets: readonly string[];
  readonly endpoints: readonly { readonly method: string; readonly path: string; readonly access: string }[];
}

export function outlineOfPlugin(plugin: Plugin, { http, pipeline }: Pick<App, 'http' | 'pipeline'>): PluginOutline {
  const { name, needs, uses, provides, commands } = plugin;
  const own = <T extends { readonly plugin: string }>(list: readonly T[]) => list.filter((one) => one.plugin === name);
  return {
    name,
    needs: tokenIds(needs),
    uses: tokenIds(uses),
    provides: tokenIds(provides),
    commands: commands.map((command) => command.name),
    hooks: own(pipeline.describe()).map(({ stage, phase, mode }) => ({ stage, phase, mode })),
    targets: own(pipeline.targets()).map((target) => target.name),
    endpoints: own(http.describe()).map(({ method, path, access }) => ({ method, path, access })),
  };
}
