import { memoryUsage } from 'node:process';
import type { Catalogue, Configuration, HealthOverview } from '../../core/contracts/server.js';
import type { PluginContext } from '../../core/plugin.js';
import type { Activity } from './charts/activity.js';
import { DiskSpace, spaceOf } from './system/disk-space.js';
import { EventLoop } from './system/event-loop.js';
import { HealthChanges } from './health-report.js';
import { HookFailures } from './hook-failures.js';
import type { MonitoringSettings } from './options.js';
import { SessionRoom } from './system/session-room.js';
import { WriteProbe } from './system/write-probe.js';

/** How often disk, event loop, hooks and health are looked at. */
const SAMPLE_SECONDS = 10;
/** How often it is tried whether the disk can be written. */
const PROBE_SECONDS = 30;

export interface HealthGround {
  readonly catalogue: Catalogue;
  readonly configuration: Configuration;
  readonly health: HealthOverview;
  readonly activity: Activity;
  readonly options: MonitoringSettings;
}

export interface HealthWatch {
  readonly disk: DiskSpace;
  readonly probe: WriteProbe;
  readonly eventLoop: EventLoop;
}

/** Registers the components that nobody else knows of, and looks at all of them from time to time. */
export async function watchHealth(context: PluginContext, ground: HealthGround): Promise<HealthWatch> {
  const { clock, health, log } = context;
  const { catalogue, configuration, activity, options } = ground;
  const disk = new DiskSpace(() => spaceOf(configuration.data), options.disk);
  const probe = new WriteProbe({ folder: configuration.data, clock });
  const eventLoop = new EventLoop(options.eventLoop);
  context.onClose(() => eventLoop.close());
  const hooks = new HookFailures(() => catalogue.hooks(), clock);
  const room = new SessionRoom(() => activity.figures().sessions, configuration);
  const changes = new HealthChanges(ground.health, log);
  await disk.look();
  await probe.look();

  health.check('disk', () => disk.report());
  health.check('disk writes', () => probe.report());
  health.check('eventLoop', () => eventLoop.report());
  health.check('memory', () => ({ status: 'up', figures: memoryFigures() }));
  health.check('pipeline', () => hooks.report());
  health.check('sessions', () => room.report());
  context.every(PROBE_SECONDS, () => probe.look());
  context.every(SAMPLE_SECONDS, async () => {
    await disk.look();
    eventLoop.look();
    hooks.look();
    changes.look();
  });
  return { disk, probe, eventLoop };
}

function memoryFigures(): Readonly<Record<string, number>> {
  const { rss, heapUsed, heapTotal, external, arrayBuffers } = memoryUsage();
  return {
    residentBytes: rss,
    heapUsedBytes: heapUsed,
    heapTotalBytes: heapTotal,
    externalBytes: external,
    arrayBufferBytes: arrayBuffers,
  };
}
