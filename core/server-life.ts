import type { Lifecycle } from './contracts/lifecycle.js';
import type { HealthReport } from './health.js';

/** From the start of the plugins to the word to stop. */
export class ServerLife implements Lifecycle {
  readonly started: Promise<void>;
  readonly #stopping = new AbortController();
  #begin: () => void = () => undefined;

  constructor() {
    this.started = new Promise((resolve) => (this.#begin = resolve));
  }

  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  begin(): void {
    this.#begin();
  }

  end(): void {
    this.#stopping.abort();
  }

  readonly health = (): HealthReport =>
    this.stopping.aborted ? { status: 'down', why: 'The server is stopping.' } : { status: 'up' };
}
