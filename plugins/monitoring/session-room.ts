import type { Configuration } from '../../core/contracts/server.js';
import type { HealthReport } from '../../core/health.js';

/** Share of the limit from which on it is told that it comes near. */
const NEAR = 0.9;
const KEY = 'smtp.limits.clients';

/** How near the open sessions are to their limit: beyond it clients are sent away. */
export class SessionRoom {
  readonly #open: () => number;
  readonly #configuration: Pick<Configuration, 'effective'>;
  #limit = Infinity;

  constructor(open: () => number, configuration: Pick<Configuration, 'effective'>) {
    this.#open = open;
    this.#configuration = configuration;
    this.readLimit();
  }

  /** Reads the limit that is in force. */
  readLimit(): void {
    const value = this.#configuration.effective().find(({ key }) => key === KEY)?.value;
    this.#limit = typeof value === 'number' ? value : Infinity;
  }

  report(): HealthReport {
    const open = this.#open();
    if (open < this.#limit * NEAR) return { status: 'up' };
    const why = `${open} SMTP sessions are open; ${this.#limit} may be, then clients are sent away.`;
    return { status: 'degraded', why };
  }
}
