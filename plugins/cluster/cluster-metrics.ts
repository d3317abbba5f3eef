import type { PluginContext } from '../../core/plugin.js';
import type { ClusterNode } from './node.js';
import { askFor, readNodes, readOldestSnapshot, readTables, type TableState } from './database/server-state.js';

const readSeconds = 15;

/** What was read last; undefined while the database does not answer. */
interface Figures {
  readonly states: ReadonlyMap<string, number>;
  readonly snapshotSeconds: number;
  readonly tables: readonly TableState[];
}

/**
 * Metrics of the session of this node, and of the cluster as the database says it: all nodes export the same of the
 * latter.
 */
export function exportMetrics(
  { metrics, every, log }: Pick<PluginContext, 'metrics' | 'every' | 'log'>,
  node: ClusterNode,
  sessionSeconds: number,
): void {
  let figures: Figures | undefined;
  every(readSeconds, async () => {
    figures = await readFigures(node, sessionSeconds).catch((error: unknown) => {
      log.debug({ err: error }, 'the figures of the cluster cannot be read');
      return undefined;
    });
  });
  metrics.gauge('cluster_database_up', 'Whether the database of the cluster answers.', [], (gauge) => {
    gauge.set(node.fault === undefined ? 1 : 0);
  });
  const age = 'Seconds since the last beat of this node that the database has answered; none without a session.';
  metrics.gauge('cluster_session_age_seconds', age, [], (gauge) => {
    gauge.reset();
    if (node.beatAgeMs !== undefined) gauge.set(node.beatAgeMs / 1000);
  });
  const fenced = metrics.counter('cluster_fenced_total', 'Sessions that this node has lost, and joined anew.');
  let counted = 0;
  node.onSession(() => {
    if (node.fenced > counted) fenced.inc({}, node.fenced - counted);
    counted = node.fenced;
  });
  metrics.gauge('cluster_nodes', 'Nodes of the whole cluster; the same at each node.', ['state'], (gauge) => {
    gauge.reset();
    for (const [state, count] of figures?.states ?? []) gauge.set({ state }, count);
  });
  const oldest = 'Age of the oldest snapshot in the database, which keeps vacuum away; the same at each node.';
  metrics.gauge('cluster_oldest_snapshot_seconds', oldest, [], (gauge) => {
    gauge.reset();
    if (figures !== undefined) gauge.set(figures.snapshotSeconds);
  });
  const dead = 'Dead rows in the tables of the database, estimated; the same at each node.';
  metrics.gauge('cluster_dead_tuples', dead, ['table'], (gauge) => {
    gauge.reset();
    for (const { table, deadRows } of figures?.tables ?? []) gauge.set({ table }, deadRows);
  });
  const size = 'Size of the tables of the database, with indexes; the same at each node.';
  metrics.gauge('cluster_table_bytes', size, ['table'], (gauge) => {
    gauge.reset();
    for (const { table, bytes } of figures?.tables ?? []) gauge.set({ table }, bytes);
  });
}

async function readFigures(node: ClusterNode, sessionSeconds: number): Promise<Figures> {
  const ask = askFor(node.database);
  const states = new Map(['up', 'draining', 'silent', 'dead'].map((state) => [state, 0]));
  for (const { state } of await readNodes(ask, sessionSeconds)) states.set(state, (states.get(state) ?? 0) + 1);
  const oldest = await readOldestSnapshot(ask);
  return {
    states,
    snapshotSeconds: oldest?.seconds ?? 0,
    tables: await readTables(ask),
  };
}
