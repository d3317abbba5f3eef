import { randomInt } from 'node:crypto';
import type { Cluster } from '../../../core/contracts/cluster.js';
import type { RelayQueueStore } from '../../../core/contracts/relay-queue-store.js';
import type { PluginContext } from '../../../core/plugin.js';
import { OutageLog } from './outage-log.js';
import { PostgresRelayQueue } from './postgres-relay-queue.js';
import { queueMeter } from './queue-meter.js';

export { moveQueue } from './move-queue.js';

/** The queue that the nodes of a cluster share. */
export function postgresStore(
  { log, every, folder, metrics }: Pick<PluginContext, 'log' | 'every' | 'folder' | 'metrics'>,
  cluster: Cluster,
): RelayQueueStore {
  const meter = queueMeter(metrics);
  return {
    clock: cluster.clock,
    open: async ({ bounds }) => {
      const outages = await OutageLog.open(await folder('queue-outage'), { log });
      metrics.gauge(
        'cluster_waiting_outcomes',
        'Outcomes on the disk of this node that the database has not taken yet.',
        [],
        (gauge) => {
          gauge.set(outages.outcomes.size);
        },
      );
      const queue = new PostgresRelayQueue({
        cluster,
        outages,
        log,
        bounds,
        maxWaitMs: cluster.commitTimeoutMs,
        random: (limit) => randomInt(limit),
        meter,
      });
      await queue.look();
      every(1, () => queue.look());
      return queue;
    },
  };
}
