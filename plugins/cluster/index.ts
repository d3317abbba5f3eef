import { cluster, documents, duties } from '../../core/contracts/cluster.js';
import type { HealthReport } from '../../core/contracts/health.js';
import type { Service } from '../../core/contracts/service.js';
import { configuration, lifecycle } from '../../core/contracts/server.js';
import { nodeIdOf } from '../../core/host/data-folder.js';
import { version } from '../../core/host/installation.js';
import { definePlugin, type PluginContext } from '../../core/plugin.js';
import { startError } from '../../core/problem.js';
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
  provides: { cluster: maybe(cluster), documents: maybe(documents), duties: maybe(duties) },
  async setup(context, { options, configuration: { data, hostname } }) {
    const { database, sessionSeconds } = options;
    const { clock, log, http, onClose, every } = context;
    http.navigate({ title: 'Cluster', href: '/cluster', order: 95, role: 'read', group: 'Admin' });
    if (database === undefined) {
      http.mount(clusterEndpoints({ node: undefined, sessionSeconds }));
      return { cluster: undefined, documents: undefined, duties: undefined };
    }
    // Who has no cluster does not wait until the client of the database is loaded.
    const [{ ClusterNode }, { DatabaseDocuments }, { NodeDuties }] = await Promise.all([
      import('./node.js'),
      import('./database-documents.js'),
      import('./node-duties.js'),
    ]);
    const node = new ClusterNode({
      settings: { ...options, database },
      node: options.node ?? hostname,
      instance: await nodeIdOf(data),
      clock,
      log,
      report: () => ({ version }),
    });
    const complaint = await node.complaint();
    if (complaint !== undefined) throw startError(complaint);
    await node.join();
    onClose(() => node.leave());
    const kept = new DatabaseDocuments(node);
    const taken = new NodeDuties(node);
    http.mount(clusterEndpoints({ node, sessionSeconds }));
    every(sessionSeconds / 6, () => taken.take());
    every(30, () => kept.look());
    await taken.take();
    lookAfter(context, node);
    return { cluster: node, documents: kept, duties: taken };
  },
});

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
