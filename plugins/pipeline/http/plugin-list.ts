import { z } from 'zod';
import type { PluginState } from '../../../core/contracts/plugins-overview.js';

export const PluginAnswer = z.object({
  name: z.string(),
  from: z.string().nullable().describe('The element of sitePlugins; null for what comes with the server'),
  state: z
    .enum(['running', 'shadow', 'failed', 'replaced'])
    .describe('shadow: its verdicts are only written down; replaced: one of the site runs in its place'),
  kit: z.string().describe('Version of the plugin kit that it is written for'),
  since: z.string().describe('When it came into this state: loaded, reloaded, failed'),
  versions: z.int().describe('Versions of its code in memory; they stay until a restart'),
  hooks: z.int(),
  endpoints: z.int(),
  needs: z.array(z.string()).describe('Ids of services'),
  uses: z.array(z.string()).describe('Services that it takes when they are there'),
  provides: z.array(z.string()),
  targets: z.array(z.string()).describe('Delivery targets'),
  faults: z.int().describe('Since it came into this state'),
  lastFault: z.object({ at: z.string(), where: z.string(), message: z.string() }).nullable(),
  waiting: z.string().nullable().describe('Why only a restart brings its newest code or options into force'),
  deprecated: z.array(z.string()).describe('What it uses that a later version of the kit will not have'),
});

const shownStates: Readonly<Record<PluginState['state'], { readonly label: string; readonly tone: string }>> = {
  running: { label: 'running', tone: 'good' },
  shadow: { label: 'shadow', tone: 'warn' },
  failed: { label: 'failed', tone: 'bad' },
  replaced: { label: 'replaced', tone: 'neutral' },
};

/** Model of the plugins page. @param keys of the configuration in force */
export const pluginRows = (plugins: readonly PluginState[], keys: readonly string[]) =>
  plugins.map((plugin) => ({
    ...plugin,
    shown: shownStates[plugin.state],
    source: plugin.from ?? 'built-in',
    options: plugin.state === 'replaced' ? 0 : keys.filter((key) => key.startsWith(`plugins.${plugin.name}.`)).length,
    remarks: [
      ...(plugin.waiting === null ? [] : [`Waits for a restart. ${plugin.waiting}`]),
      ...plugin.deprecated.map((what) => `Deprecated: ${what}`),
      ...(plugin.versions > 1 ? [`${plugin.versions} versions of its code are in memory.`] : []),
    ],
  }));
