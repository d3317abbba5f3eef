import { join } from 'node:path';
import { configuration, reloading } from '../../core/contracts/server.js';
import { definePlugin } from '../../core/plugin.js';
import { parseNetworks } from '../../core/smtp/networks.js';
import { auditEndpoint } from './audit-endpoint.js';
import { FileWatch } from './file-watch.js';
import { maintenanceHook, senderHook } from './hooks.js';
import { ConfigOptions } from './options.js';
import { configEndpoints } from './routes.js';

/** Shows and reloads the configuration, and applies its general rules to SMTP: maintenance mode and relay networks. */
export const config = definePlugin({
  name: 'config',
  options: ConfigOptions,
  needs: { configuration, reloading },
  async setup({ health, http, log, onClose, smtp }, { options, configuration, reloading }) {
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
            quietMs: 200,
            log,
            // Whether it was taken stands in the log, in health and on the page.
            changed: () => reloading.reload({ by: 'file watch', unasked: true }).then(nothing, nothing),
          });
    onClose(() => watch?.stop());
    if (settings.watch) await watch?.start();

    smtp.on('connect', { order: 'first' }, maintenanceHook(current));
    smtp.on(
      'mailFrom',
      { order: 'first' },
      senderHook(current, () => networks),
    );
    health.check('maintenance', () =>
      settings.maintenance
        ? { status: 'degraded', why: 'Maintenance mode is on: mail is deferred.' }
        : { status: 'up' },
    );
    health.check('reload', () =>
      reloading.last()?.refused == null
        ? { status: 'up' }
        : { status: 'degraded', why: 'The last reload was refused; the page /config says why.' },
    );
    http.mount(configEndpoints({ configuration, reloading, settings: current }));
    http.mount([auditEndpoint(join(configuration.data, 'logs'))]);
    http.navigate({ title: 'Audit', href: '/audit', order: 95, role: 'admin' });
    http.navigate({ title: 'Configuration', href: '/config', order: 90, role: 'admin' });
    return {
      reconfigure: async (changed) => {
        if (changed.maintenance !== settings.maintenance) {
          log.warn({ maintenance: changed.maintenance }, 'maintenance mode was switched');
        }
        if (!changed.watch) watch?.stop();
        else await watch?.start();
        settings = changed;
      },
    };
  },
});

const nothing = (): void => undefined;
