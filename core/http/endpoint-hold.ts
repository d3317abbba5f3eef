import type { AnyEndpoint } from './endpoint.js';

/** Marks the plugin of an endpoint as in use; the result ends that. */
export type Hold = () => () => void;

const holds = new WeakMap<object, Hold>();

/** The endpoint is in use from the moment its route is found until the request is answered, its body included. */
export function trackInUse(endpoint: AnyEndpoint, hold: Hold): AnyEndpoint {
  holds.set(endpoint, hold);
  return endpoint;
}

/** Marks all of them; the result releases them. */
export function trackAll(endpoints: readonly object[]): () => void {
  const ends = endpoints.map((endpoint) => holds.get(endpoint)?.());
  return () => {
    for (const end of ends) end?.();
  };
}
