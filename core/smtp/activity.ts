import type { SmtpLimits } from './limit-options.js';

/** What a connection is at. `deciding`, `stalled` and `delivering` wait for this server, the others for the client. */
export type Activity =
  'greeting' | 'commands' | 'deciding' | 'data' | 'stalled' | 'delivering' | 'handshake' | 'closing' | 'closed';

/** A client that was told goodbye has so long to read it. */
const lingerSeconds = 5;

/** How long a connection may be at it, in seconds. DATA has a least rate instead. */
export function secondsFor(activity: Activity, limits: SmtpLimits): number {
  switch (activity) {
    case 'greeting':
    case 'deciding':
      return limits.handlerSeconds;
    case 'stalled':
    case 'delivering':
      return limits.deliverySeconds;
    case 'commands':
      return limits.commandSeconds;
    case 'handshake':
      return limits.tlsSeconds;
    case 'closing':
      return lingerSeconds;
    case 'data':
    case 'closed':
      return Infinity;
  }
}
