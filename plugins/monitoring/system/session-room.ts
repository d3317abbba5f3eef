import type { Configuration } from '../../../core/contracts/server.js';
import type { HealthReport } from '../../../core/host/health.js';

/** Share of the limit from which on it is told that it comes near. */
const NEAR = 0.9;

/** How near the open sessions are to their limit: beyond it clients are sent away. */
export class SessionRoom {
  readonly #count: () => { readonly open: number; readonly total: number };
  readonly #configuration: Pick<Configuration, 'maxSessions'>;

  constructor(
    count: () => { readonly open: number; readonly total: number },
    configuration: Pick<Configuration, 'maxSessions'>,
  ) {
    this.#count = count;
    this.#configuration = configuration;
  }

  report(): HealthReport {
    const { open, total } = this.#count();
    const { maxSessions } = this.#configuration;
    const figures = { open, total, ...(maxSessions !== undefined && { limit: maxSessions }) };
    if (open < (maxSessions ?? Infinity) * NEAR) return { status: 'up', figures };
    const why = `${open} SMTP sessions are open; ${maxSessions} may be, then clients are sent away.`;
    return { status: 'degraded', why, figures };
  }
}
