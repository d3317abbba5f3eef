import type { SmtpLimits } from './limit-options.js';

/** What a connection is at. `deciding`, `stalled` and `delivering` wait for this server, the others for the client. */
export type Activity =
  'greeting' | 'commands' | 'deciding' | 'data' | 'stalled' | 'delivering' | 'handshake' | 'closing' | 'closed';

/** A client that was told goodbye has so long to read it. */
const lingerSeconds = 5;

type Allowance = (limits: SmtpLimits) => number;

const allowances: Readonly<Record<Activity, Allowance>> = {
  greeting: (limits) => limits.handlerSeconds,
  deciding: (limits) => limits.handlerSeconds,
  stalled: (limits) => limits.deliverySeconds,
  delivering: (limits) => limits.deliverySeconds,
  commands: (limits) => limits.commandSeconds,
  handshake: (limits) => limits.tlsSeconds,
  closing: () => lingerSeconds,
  // DATA has a least rate instead.
  data: () => Infinity,
  closed: () => Infinity,
};

/** How long a connection may be at it, in seconds. */
export const secondsFor = (activity: Activity, limits: SmtpLimits): number => allowances[activity](limits);
