import type { Configuration } from '../../core/contracts/server.js';
import type { HealthReport } from '../../core/health.js';

/** Share of the limit from which on it is told that it comes near. */
const NEAR = 0.9;

/** How near the open sessions are to their limit: beyond it clients are sent away. */
export class SessionRoom {
  readonly #open: () => number;
  readonly #configuration: Pick<Configuration, 'mostSessions'>;

  constructor(open: () => number, configuration: Pick<Configuration, 'mostSessions'>) {
    this.#open = open;
    this.#configuration = configuration;
  }

  report(): HealthReport {
    const open = this.#open();
    const { mostSessions = Infinity } = this.#configuration;
    if (open < mostSessions * NEAR) return { status: 'up' };
    const why = `${open} SMTP sessions are open; ${mostSessions} may be, then clients are sent away.`;
    return { status: 'degraded', why };
  }
}
