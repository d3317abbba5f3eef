import type { Hook } from '../../core/pipeline/hook.js';
import type { NetworkSet } from '../../core/net/networks.js';
import { defer, next } from '../../core/pipeline/verdict.js';
import type { ConfigSettings } from './options.js';

/** Session note: true when the client is in a relay network and may send to any recipient. */
const RELAY_NOTE = 'config.relay';

/** Refuses new sessions in maintenance mode (RFC 5321 §3.8, 421). */
export const maintenanceHook =
  (settings: () => ConfigSettings): Hook<'connect'> =>
  () => {
    const { maintenance, maintenanceText } = settings();
    return maintenance ? defer(421, '4.3.2', maintenanceText) : next();
  };

/** Defers new messages of open sessions in maintenance mode, and marks the sessions that may relay. */
export const newMessageHook =
  (settings: () => ConfigSettings, relayNetworks: () => NetworkSet): Hook<'mailFrom'> =>
  ({ transaction }) => {
    const { maintenance, maintenanceText } = settings();
    if (maintenance) return defer(451, '4.3.2', maintenanceText);
    const { notes, remote } = transaction.session;
    if (relayNetworks().has(remote.address)) notes.set(RELAY_NOTE, true);
    return next();
  };
