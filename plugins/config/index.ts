import { configuration } from '../../core/contracts/server.js';
import { definePlugin } from '../../core/plugin.js';
import { parseNetworks } from '../../core/smtp/networks.js';
import { maintenanceHook, senderHook } from './hooks.js';
import { ConfigOptions } from './options.js';
import { configEndpoints } from './routes.js';

/** Shows the configuration, and applies its general rules to SMTP: maintenance mode and relay networks. */
export const config = definePlugin({
  name: 'config',
  options: ConfigOptions,
  needs: { configuration },
  setup({ health, http, log, smtp }, { options, configuration }) {
    let settings = options;
    const current = (): typeof settings => settings;
    smtp.on('connect', { order: 'first' }, maintenanceHook(current));
    smtp.on('mailFrom', { order: 'first' }, senderHook(current, parseNetworks(configuration.relayNetworks)));
    health.check('maintenance', () =>
      settings.maintenance
        ? { status: 'degraded', why: 'Maintenance mode is on: mail is deferred.' }
        : { status: 'up' },
    );
    http.mount(configEndpoints(configuration, current));
    http.navigate({ title: 'Configuration', href: '/config', order: 90, role: 'admin' });
    return {
      reconfigure: (changed) => {
        if (changed.maintenance !== settings.maintenance) {
          log.warn({ maintenance: changed.maintenance }, 'maintenance mode was switched');
        }
        settings = changed;
      },
    };
  },
});
