import { attemptLimits, cluster, documents, duties, siteShares } from '../../core/contracts/cluster.js';
import type { HealthReport } from '../../core/contracts/health.js';
import { configuration } from '../../core/contracts/server.js';
import { keptAnswers } from '../../core/contracts/http-records.js';
import { userRecords } from '../../core/contracts/user-records.js';
import { nodeIdOf } from '../../core/host/data-folder.js';
import { version } from '../../core/host/installation.js';
import { definePlugin, type Plugin, type PluginContext } from '../../core/plugin.js';
import { startError } from '../../core/problem.js';
import type { ClusterNode } from './node.js';
import { ClusterOptions } from './options.js';

/** Several servers that are one service: they share a PostgreSQL. Runs where it is configured. */
const nodeOfCluster = definePlugin({
  name: 'cluster',
  options: ClusterOptions,
  needs: { configuration, attemptLimits },
  provides: { cluster, documents, duties, siteShares, userRecords, keptAnswers },
  async setup(context, { options, configuration: { data, hostname }, attemptLimits: limits }) {
    // Who has no cluster does not wait until the client of the database is loaded.
    const { ClusterNode, provide } = await import('./node-services.js');
    const { clock, log, onClose } = context;
    const node = new ClusterNode({
      settings: options,
      node: options.node ?? hostname,
      instance: await nodeIdOf(data),
      clock,
      log,
      report: () => ({ version, now: clock.now() }),
    });
    const complaint = await node.complaint();
    if (complaint !== undefined) throw startError(complaint);
    await node.join();
    onClose(() => node.leave());
    lookAfter(context, node);
    return { cluster: node, ...(await provide(context, node, limits)) };
  },
});

export const clusterPlugin: Plugin = { ...nodeOfCluster, whenConfigured: true };

function lookAfter({ health, metrics }: PluginContext, node: ClusterNode): void {
  health.check('cluster', (): HealthReport => {
    if (node.fault !== undefined) return { status: 'degraded', why: `The database does not answer: ${node.fault}.` };
    if (node.session === undefined) return { status: 'degraded', why: 'This node has no session; it joins again.' };
    return { status: 'up' };
  });
  metrics.gauge('cluster_database_up', 'Whether the database of the cluster answers.', [], (gauge) => {
    gauge.set(node.fault === undefined ? 1 : 0);
  });
  metrics.gauge('cluster_fenced_sessions', 'Sessions of this process that ended before it did.', [], (gauge) => {
    gauge.set(node.fenced);
  });
}
