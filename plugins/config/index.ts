import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { configurationSets, configurationSources } from '../../core/contracts/configuration-source.js';
import { auditReader } from '../../core/contracts/http-records.js';
import { lifecycle, configuration, reloading } from '../../core/contracts/server.js';
import { signInHistory } from '../../core/contracts/sign-in-history.js';
import { definePlugin, type PluginContext } from '../../core/plugin.js';
import { isProblem } from '../../core/problem.js';
import { parseNetworks } from '../../core/net/networks.js';
import { auditEndpoint } from './http/audit-endpoint.js';
import { signInsEndpoint } from './http/sign-ins-endpoint.js';
import { FileWatch } from './file-watch.js';
import { maintenanceHook, newMessageHook } from './hooks.js';
import { reloadCommand } from './reload-command.js';
import { ConfigOptions } from './options.js';
import { configEndpoints } from './http/routes.js';
import { SourceKinds } from './sync/source-kinds.js';
import { syncEndpoints } from './http/sync-endpoints.js';
import { Sync, type SyncInput } from './sync/sync.js';

/**
 * Shows, reloads and syncs the configuration, and applies its general rules to SMTP: maintenance mode and relay
 * networks.
 */
export const config = definePlugin({
  name: 'config',
  options: ConfigOptions,
  needs: { configuration, lifecycle, reloading, signInHistory },
  uses: { auditReader, configurationSets },
  provides: { configurationSources },
  commands: [reloadCommand],
  async setup(context, { options, configuration, lifecycle, reloading, signInHistory: history, ...shared }) {
    const { health, http, log, onClose, smtp } = context;
    let settings = options;
    const current = (): typeof settings => settings;
    let networks = parseNetworks(configuration.relayNetworks);
    const unwatch = configuration.watch?.(() => {
      networks = parseNetworks(configuration.relayNetworks);
    });
    onClose(() => unwatch?.());
    const { file } = configuration;
    const watch =
      file === null
        ? undefined
        : new FileWatch({
            path: file,
            code: async () => (await configuration.code?.()) ?? { folders: [], digest: '' },
            quietMs: 200,
            log,
            // Log, health and page report the result; during another reload the file is not even read.
            changed: () => reloading.reload({ by: 'file watch', unasked: true }).then(nothing, throwConflict),
          });
    onClose(() => watch?.stop());
    if (settings.watch) await watch?.start();

    const kinds = new SourceKinds();
    const { configurationSets: sets, auditReader: reader } = shared;
    if (sets !== undefined) kinds.add(sets.scheme, (request) => sets.open(request));
    const sync = openSync(context, { configuration, reloading, kinds, stopping: lifecycle.stopping });
    onClose(() => sync.stop());
    // After the listeners are open: a pulled configuration may add listeners.
    void lifecycle.started.then(() => sync.use(settings.sync));

    smtp.on('connect', { order: 'first' }, maintenanceHook(current));
    smtp.on(
      'mailFrom',
      { order: 'first' },
      newMessageHook(current, () => networks),
    );
    health.check('maintenance', () =>
      settings.maintenance
        ? { status: 'degraded', why: 'Maintenance mode is on: mail is deferred.', page: '/config?q=maintenance' }
        : { status: 'up' },
    );
    health.check('reload', () =>
      reloading.last()?.refused == null
        ? { status: 'up' }
        : { status: 'degraded', why: 'The last reload was refused; the page /config says why.', page: '/config' },
    );
    health.check('sync', () => ({ ...sync.health(), page: '/config/sync/status' }));
    http.mount(configEndpoints({ configuration, reloading, sync, settings: current }));
    http.mount(syncEndpoints(sync));
    http.mount([auditEndpoint(join(configuration.data, 'logs'), reader), signInsEndpoint(history)]);
    http.navigate({ title: 'Audit', href: '/audit', order: 95, role: 'admin', group: 'Admin' });
    http.navigate({ title: 'Configuration', href: '/config', order: 90, role: 'admin', group: 'Admin' });
    return {
      configurationSources: kinds,
      reconfigure: async (changed) => {
        if (changed.maintenance !== settings.maintenance) {
          log.warn({ maintenance: changed.maintenance }, 'maintenance mode was switched');
        }
        if (!changed.watch) watch?.stop();
        else await watch?.start();
        const { sync: before } = settings;
        settings = changed;
        if (!isDeepStrictEqual(changed.sync, before)) sync.use(changed.sync);
      },
    };
  },
});

function openSync({ clock, log, metrics }: PluginContext, parts: Omit<SyncInput, 'clock' | 'log' | 'count'>): Sync {
  const looks = metrics.counter('config_sync_looks_total', 'Looks at the source of the configuration.', ['result']);
  return new Sync({ ...parts, clock, log, count: (result) => looks.inc({ result }) });
}

const nothing = (): void => undefined;

function throwConflict(error: unknown): void {
  if (isProblem(error) && error.problem === 'conflict') throw error;
}
