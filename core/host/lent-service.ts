import type { Service } from './service.js';

/** A service that core itself lends. */
export interface Lent {
  readonly token: Service<unknown>;
  readonly value: unknown;
}

export function lend<T>(token: Service<T>, value: T): Lent {
  return { token, value };
}
