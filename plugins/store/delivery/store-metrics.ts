import type { PluginContext } from '../../../core/plugin.js';

/** Metrics of the store. */
export interface StoreMetrics {
  /** @param seconds from the first link to the last durable folder */
  delivered(mailboxes: number, size: number, seconds: number): void;
  failed(mailboxes: number): void;
}

export function storeMetrics(metrics: PluginContext['metrics']): StoreMetrics {
  const deliveries = metrics.counter('store_deliveries_total', 'Deliveries to mailboxes by result', ['result']);
  const bytes = metrics.counter('store_delivered_bytes_total', 'Bytes of messages put into mailboxes');
  const commit = metrics.histogram(
    'store_commit_seconds',
    'Time to link a message into its mailboxes durably',
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5],
  );
  const delivered = deliveries.labels({ result: 'delivered' });
  const failed = deliveries.labels({ result: 'failed' });
  for (const result of [delivered, failed]) result.inc(0);
  return {
    delivered: (mailboxes, size, seconds) => {
      delivered.inc(mailboxes);
      bytes.inc(mailboxes * size);
      commit.observe(seconds);
    },
    failed: (mailboxes) => failed.inc(mailboxes),
  };
}
