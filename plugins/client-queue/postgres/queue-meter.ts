import type { PluginContext } from '../../../core/plugin.js';

/** What the queue in a database counts of its transactions and leases. */
export interface QueueMeter {
  /** A transaction that took mail in, or wrote outcomes. `begun` by `performance.now()`. */
  committed(kind: 'accept' | 'outcome', items: number, begun: number): void;
  /** Leases that this node has taken from dead ones. */
  lost(leases: number): void;
  /** Outcomes of this node that came after their lease was taken away. */
  late(result: 'counted' | 'refused', outcomes: number): void;
}

export function queueMeter(metrics: PluginContext['metrics']): QueueMeter {
  const seconds = metrics.histogram(
    'cluster_commit_seconds',
    'Time of transactions that take mail in or write outcomes, waiting for an absent database included.',
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30],
    ['kind'],
  );
  const sizes = metrics.histogram(
    'cluster_batch_size',
    'Messages or outcomes that share a transaction.',
    [1, 2, 5, 10, 20, 50, 100, 200],
    ['kind'],
  );
  const leases = metrics.counter('cluster_lost_leases_total', 'Leases of dead nodes that this node has taken over.');
  const outcomes = metrics.counter(
    'cluster_late_outcomes_total',
    'Outcomes of this node whose lease was taken away before: counted, or refused because another node had begun.',
    ['result'],
  );
  return {
    committed(kind, items, begun) {
      seconds.observe({ kind }, (performance.now() - begun) / 1000);
      sizes.observe({ kind }, items);
    },
    lost: (count) => leases.inc({}, count),
    late: (result, count) => outcomes.inc({ result }, count),
  };
}
