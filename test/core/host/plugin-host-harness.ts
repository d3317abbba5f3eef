import { systemClock } from '../../../core/clock.js';
import { type PluginHostOptions, PluginHost } from '../../../core/host/plugin-host.js';
import type { PluginSet, SiteOrigin } from '../../../core/host/plugin-set.js';
import type { Log } from '../../../core/log/log.js';
import type { Plugin, PluginContext } from '../../../core/plugin.js';

export const lines: string[] = [];
const note = (_fields: unknown, text?: string) => void lines.push(text ?? '');
const log: Log = { trace: note, debug: note, info: note, warn: note, error: note, fatal: note, child: () => log };

/** Plugins that come with the server, unless `site` says otherwise; with their usual options or those given. */
export function pluginSetOf(
  plugins: readonly Plugin[],
  options: Readonly<Record<string, unknown>> = {},
  site: PluginSet['site'] = new Map(),
): PluginSet {
  const chosen = plugins.map(({ name, options: schema }) => [name, options[name] ?? schema.parse({})] as const);
  return { plugins, options: new Map(chosen), site, unloaded: [] };
}

/** What is registered is a word in `inForce`, put there by `http.navigate`. */
export function createHost(plugins: readonly Plugin[], more: Partial<PluginHostOptions> = {}) {
  const inForce: string[] = [];
  const host = new PluginHost({
    wanted: pluginSetOf(plugins),
    provided: [],
    log,
    clock: systemClock,
    contextOf: (_plugin, registrations, onClose) =>
      ({
        onClose,
        http: {
          navigate: ({ title }: { title: string }) =>
            registrations.add(() => {
              if (inForce.includes(title)) throw new Error(`${title} twice`);
              inForce.push(title);
              return () => void inForce.splice(inForce.indexOf(title), 1);
            }),
        },
      }) as unknown as PluginContext,
    ...more,
  });
  return { host, inForce };
}

export const link = (title: string) => ({ title, href: '/', order: 1, role: 'read' }) as const;

const origin = (fingerprint: string): SiteOrigin => ({
  entry: { from: './site', mode: 'enforce', required: false, startSeconds: 1 },
  file: '/site/index.js',
  fingerprint,
  replaces: false,
  kitNumber: false,
});

/** All of them are the site's, loaded from code of that version. */
export const sitePluginSet = (
  plugins: readonly Plugin[],
  version: string,
  options: Readonly<Record<string, unknown>> = {},
): PluginSet => pluginSetOf(plugins, options, new Map(plugins.map(({ name }) => [name, origin(version)])));
