import type { Clock } from '../../core/clock.js';
import type { ClientFailure } from '../../core/smtp/client/failure.js';

/** So long a server that did not take a call is not called again. */
const deadMs = 120_000;
const mostRemembered = 10_000;

interface Found {
  readonly until: number;
  readonly failure: ClientFailure;
  readonly asked: boolean;
}

/** Servers that could not be reached a short while ago: one dead server must not cost every message a timeout. */
export class DeadHosts {
  readonly #clock: Clock;
  readonly #dead = new Map<string, Found>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param asked an operator wants a call: only what another such call has found counts */
  get(address: string, port: number, asked: boolean): ClientFailure | undefined {
    const found = this.#dead.get(key(address, port));
    if (found === undefined || (asked && !found.asked)) return undefined;
    if (found.until > this.#clock.monotonic()) return found.failure;
    this.#dead.delete(key(address, port));
    return undefined;
  }

  add(address: string, port: number, failure: ClientFailure, asked: boolean): void {
    if (this.#dead.size >= mostRemembered) this.#dead.clear();
    this.#dead.set(key(address, port), { until: this.#clock.monotonic() + deadMs, failure, asked });
  }

  remove(address: string, port: number): void {
    if (this.#dead.size > 0) this.#dead.delete(key(address, port));
  }

  forget(): void {
    this.#dead.clear();
  }
}

const key = (address: string, port: number): string => `${address} ${port}`;
