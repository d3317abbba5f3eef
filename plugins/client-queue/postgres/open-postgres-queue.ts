import { randomInt } from 'node:crypto';
import type { Cluster } from '../../../core/contracts/cluster.js';
import type { RelayQueueStore } from '../../../core/contracts/relay-queue-store.js';
import type { PluginContext } from '../../../core/plugin.js';
import { PostgresRelayQueue } from './postgres-relay-queue.js';
import { queueMeter } from './queue-meter.js';

export { moveQueue } from './move-queue.js';

/** A client that has sent its last dot waits ten minutes for the reply (RFC 5321 §4.5.3.2.6). */
const maxWaitMs = 30_000;

/** The queue that the nodes of a cluster share. */
export function postgresStore(
  { log, every, metrics }: Pick<PluginContext, 'log' | 'every' | 'metrics'>,
  cluster: Cluster,
): RelayQueueStore {
  const meter = queueMeter(metrics);
  return {
    clock: cluster.clock,
    open: async ({ bounds }) => {
      const queue = new PostgresRelayQueue({
        cluster,
        log,
        bounds,
        maxWaitMs,
        random: (limit) => randomInt(limit),
        meter,
      });
      await queue.look();
      every(1, () => queue.look());
      return queue;
    },
  };
}
