import type { HealthOverview } from '../../../core/contracts/server.js';
import type { HealthState } from '../../../core/contracts/health.js';
import type { PluginContext } from '../../../core/plugin.js';
import type { DiskSpace, EventLoop, WriteProbe } from './probes.js';
import { version } from '../../../core/host/installation.js';

const states: readonly HealthState[] = ['up', 'degraded', 'down'];

/** Gauges of the server itself, read on collection. */
export function gaugeServer(
  metrics: PluginContext['metrics'],
  parts: {
    readonly disk: DiskSpace;
    readonly probe: WriteProbe;
    readonly eventLoop: EventLoop;
    readonly health: HealthOverview;
  },
): void {
  const { disk, probe, eventLoop, health } = parts;
  metrics.gauge('version_info', 'The version that runs; always 1.', ['version']).set({ version }, 1);
  metrics.gauge('uptime_seconds', 'Time since the start.', [], (gauge) => gauge.set(health.uptime()));
  metrics.gauge('event_loop_lag_seconds', '99th percentile of the delay of the event loop.', [], (gauge) =>
    gauge.set(eventLoop.lag),
  );
  metrics.gauge('disk_free_bytes', 'Free space on the disk of the data folder.', [], (gauge) =>
    gauge.set(disk.space?.free ?? Number.NaN),
  );
  metrics.gauge('disk_size_bytes', 'Size of the disk of the data folder.', [], (gauge) =>
    gauge.set(disk.space?.size ?? Number.NaN),
  );
  metrics.gauge('disk_write_seconds', 'What the last durable write of one block took.', [], (gauge) =>
    gauge.set(probe.seconds),
  );
  let shown = -1;
  metrics.gauge('health_state', '1 for the state that a component is in.', ['component', 'state'], (gauge) => {
    health.status();
    if (health.changes === shown) return;
    shown = health.changes;
    gauge.reset();
    for (const [component, { status }] of Object.entries(health.components())) {
      for (const state of states) gauge.set({ component, state }, state === status ? 1 : 0);
    }
  });
}
