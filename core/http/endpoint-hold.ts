import type { AnyEndpoint } from './endpoint.js';

/** Begins to hold what is behind an endpoint; the answer ends it. */
export type Hold = () => () => void;

const holds = new WeakMap<object, Hold>();

/** The endpoint, held from the moment that a request is found to be for it until that is answered, its body included. */
export function trackInUse(endpoint: AnyEndpoint, hold: Hold): AnyEndpoint {
  holds.set(endpoint, hold);
  return endpoint;
}

/** Holds them all; the answer lets them go. */
export function holdAll(endpoints: readonly object[]): () => void {
  const ends = endpoints.map((endpoint) => holds.get(endpoint)?.());
  return () => {
    for (const end of ends) end?.();
  };
}
