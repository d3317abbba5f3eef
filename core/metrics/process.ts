import { collectDefaultMetrics, Registry } from 'prom-client';

/** A gauge that ends in `_total`: the sum of the metric of the same name without it, so nothing is lost. */
const misnamed = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total'];

let registry: Registry | undefined;

/**
 * CPU, memory, descriptors, heap, garbage collection and event loop of this process. They describe the process and
 * cannot be switched off again, so there is one set of them, however many servers run in it.
 */
export function processMetrics(): Registry {
  if (registry !== undefined) return registry;
  registry = new Registry();
  collectDefaultMetrics({ register: registry });
  for (const name of misnamed) registry.removeSingleMetric(name);
  return registry;
}
