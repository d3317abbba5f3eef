import { cluster, documents, duties, siteShares } from '../../core/contracts/cluster.js';
import type { HealthReport } from '../../core/contracts/health.js';
import type { Service } from '../../core/contracts/service.js';
import { configuration, lifecycle } from '../../core/contracts/server.js';
import { nodeIdOf } from '../../core/host/data-folder.js';
import { version } from '../../core/host/installation.js';
import { definePlugin } from '../../core/plugin.js';
import { startError } from '../../core/problem.js';
import { exportMetrics } from './cluster-metrics.js';
import { clockPlaySeconds } from './server-state.js';
import { clusterCommand } from './cluster-command.js';
import { clusterCheck } from './doctor-check.js';
import { clusterEndpoints } from './http/routes.js';
import type { ClusterNode } from './node.js';
import { ClusterOptions } from './options.js';

/** A service that is there when the cluster is configured. */
const maybe = <T>(token: Service<T>): Service<T | undefined> => token;

/** Several servers that are one service: they share a PostgreSQL. Without `database` this plugin does nothing. */
export const clusterPlugin = definePlugin({
  name: 'cluster',
  options: ClusterOptions,
  needs: { configuration, lifecycle },
  commands: [clusterCommand],
  checks: [clusterCheck],
  provides: {
    cluster: maybe(cluster),
    documents: maybe(documents),
    duties: maybe(duties),
    siteShares: maybe(siteShares),
  },
  async setup(context, { options, configuration: { data, hostname } }) {
    const { database, sessionSeconds } = options;
    const { clock, log, http, health, onClose, every } = context;
    http.navigate({ title: 'Cluster', href: '/cluster', order: 95, role: 'read', group: 'Admin' });
    if (database === undefined) {
      http.mount(clusterEndpoints({ node: undefined, sessionSeconds }));
      return { cluster: undefined, documents: undefined, duties: undefined, siteShares: undefined };
    }
    // Who has no cluster does not wait until the client of the database is loaded.
    const [{ ClusterNode }, { DatabaseDocuments }, { NodeDuties }, { NodeShares }] = await Promise.all([
      import('./node.js'),
      import('./database-documents.js'),
      import('./node-duties.js'),
      import('./site-shares.js'),
    ]);
    const node = new ClusterNode({
      settings: { ...options, database },
      node: options.node ?? hostname,
      instance: await nodeIdOf(data),
      clock,
      log,
      report: () => ({ version }),
    });
    onClose(() => node.leave());
    const complaint = await node.complaint();
    if (complaint !== undefined) throw startError(complaint);
    await node.join();
    const kept = new DatabaseDocuments(node);
    const shares = new NodeShares(node);
    every(1, () => shares.look());
    const taken = new NodeDuties(node);
    http.mount(clusterEndpoints({ node, sessionSeconds }));
    every(sessionSeconds / 6, () => taken.take());
    every(30, () => kept.look());
    await taken.take();
    health.check('cluster', () => healthOf(node));
    exportMetrics(context, node, sessionSeconds);
    return { cluster: node, documents: kept, duties: taken, siteShares: shares };
  },
});

function healthOf(node: ClusterNode): HealthReport {
  const page = '/cluster';
  if (node.fault !== undefined)
    return { status: 'degraded', why: `The database does not answer: ${node.fault}.`, page };
  if (node.session === undefined) return { status: 'degraded', why: 'This node has no session; it joins again.', page };
  if (Math.abs(node.clockAheadMs ?? 0) > clockPlaySeconds * 1000)
    return {
      status: 'degraded',
      why: `The clocks of this machine and of the database differ by ${Math.round(Math.abs(node.clockAheadMs ?? 0) / 1000)} s.`,
      page,
    };
  return { status: 'up' };
}
