import { directory } from '../../core/contracts/directory.js';
import { mailSearch } from '../../core/contracts/mail-search.js';
import { otherNodes, type OtherNodes } from '../../core/contracts/other-nodes.js';
import { traces } from '../../core/contracts/traces.js';
import {
  lifecycle,
  catalogue,
  configuration,
  healthOverview,
  metricsExposition,
  type Configuration,
} from '../../core/contracts/server.js';
import { relayQueue } from '../../core/contracts/relay-queue.js';
import { serverLog, type ServerLog } from '../../core/contracts/server-log.js';
import { watchFolder } from '../../core/host/unknown-entries.js';
import { stallWatch, type StallWatch } from '../../core/contracts/stall-watch.js';
import { definePlugin, next, type PluginContext } from '../../core/plugin.js';
import { Activity } from './charts/activity.js';
import { charts } from './charts/charts.js';
import { diskSpaceCheck } from './doctor-check.js';
import { Environment } from './system/environment.js';
import { watchHealth } from './health.js';
import { Finder } from './finder.js';
import { SearchGroups } from './search-groups.js';
import { HeapDumps, isOwnDump } from './system/heap-dumps.js';
import { MetricHistory, STEP_SECONDS } from './charts/history.js';
import { LogSearch } from './logs/log-search.js';
import { LogTail } from './logs/log-tail.js';
import { countMail } from './charts/mail-metrics.js';
import { MonitoringOptions, type MonitoringSettings } from './options.js';
import { monitoringEndpoints } from './http/routes.js';
import { logEndpoints } from './http/logs.js';
import { heapDumpEndpoints } from './http/heap-dumps.js';
import { metricsEndpoints } from './http/metrics.js';
import { searchEndpoint } from './http/search.js';
import { systemEndpoints } from './http/system.js';
import { gaugeServer } from './system/server-metrics.js';
import { StallRecorder } from './system/stalls.js';
import { ThreadDumps } from './system/thread-dump.js';
import { statusCommand } from './status-command.js';
import { countTraffic, Traffic } from './traffic/traffic.js';
import { isTrafficFile, TrafficFiles } from './traffic/traffic-files.js';

/** Proxies close silent connections after a minute, some after half of that. */
const BEAT_SECONDS = 15;
/** What a kill may take from the counts of mail. */
const TRAFFIC_SECONDS = 60;

const pages = [
  { title: 'Overview', href: '/', order: 0, role: 'read' },
  {
    title: 'Health',
    href: '/health/extended',
    section: '/health',
    order: 80,
    role: 'read',
    group: 'Server',
  },
  { title: 'Metrics', href: '/metrics', order: 82, role: 'read', group: 'Server' },
  { title: 'Log', href: '/logs', order: 84, role: 'admin', group: 'Server' },
  {
    title: 'System',
    href: '/system/props',
    section: '/system',
    order: 86,
    role: 'admin',
    group: 'Server',
  },
] as const;

/** The landing page, health, metrics and logs. It only observes mail. */
export const monitoring = definePlugin({
  name: 'monitoring',
  options: MonitoringOptions,
  needs: { catalogue, configuration, healthOverview, lifecycle, metricsExposition, serverLog, stallWatch },
  uses: { directory, mailSearch, otherNodes, relayQueue, traces },
  checks: [diskSpaceCheck],
  commands: [statusCommand],
  async setup(context, given) {
    const { options, catalogue, configuration, healthOverview, lifecycle, metricsExposition, serverLog } = given;
    const { clock, http, metrics, smtp } = context;
    let settings = options;
    const activity = new Activity(clock);
    const deps = { catalogue, configuration, health: healthOverview, activity, options };
    const { disk, probe, eventLoop } = await watchHealth(context, deps);

    smtp.on('connect', { order: 'first' }, ({ session }) => {
      if (session.dryRun !== true) activity.opened(session.id);
      return next();
    });
    smtp.watch('closed', ({ session }) => activity.closed(session.id));
    smtp.watch('accepted', ({ transaction: { session, reversePath } }) => {
      // The server's own notices do not count as traffic.
      if (session.listener.name !== 'internal' || reversePath !== null) activity.accepted();
    });
    countMail(context);
    const traffic = await openTraffic(context, configuration.data);
    gaugeServer(metrics, { disk, probe, eventLoop, health: healthOverview });

    const history = new MetricHistory(metricsExposition, charts, clock);
    await history.look();
    context.every(STEP_SECONDS, () => history.look());

    const finder = new Finder({ catalogue, directory: given.directory, relayQueue: given.relayQueue });
    http.mount(
      monitoringEndpoints({
        catalogue,
        configuration,
        health: healthOverview,
        activity,
        disk,
        traffic,
        queue: given.relayQueue,
        metrics: metricsExposition,
        finder,
      }),
    );
    http.mount([searchEndpoint({ catalogue, finder, mail: given.mailSearch, groups: new SearchGroups(given) })]);
    http.mount(
      metricsEndpoints({
        metrics: metricsExposition,
        history,
        health: healthOverview,
        clock,
        graphite: () => settings.graphite,
      }),
    );
    const nodes = given.otherNodes;
    mountLog(context, { serverLog, stopping: lifecycle.stopping, nodes, settings: () => settings });
    const stalls = recordStalls(context, given.stallWatch, options);
    await mountSystem(context, { configuration, settings: () => settings, stalls, stallWatch: given.stallWatch });
    for (const link of pages) http.navigate(link);
    return {
      reconfigure: (changed) => {
        settings = changed;
        disk.reconfigure(changed.disk);
        eventLoop.reconfigure(changed.eventLoop);
        stalls.watch(changed.eventLoop.recordStallsAboveMs);
      },
    };
  },
});

async function openTraffic(context: PluginContext, data: string): Promise<Traffic> {
  const name = 'traffic';
  const folder = await context.folder(name);
  watchFolder(name, data, { [name]: isTrafficFile }, context);
  const traffic = new Traffic(await TrafficFiles.open(folder, context.log), context.clock);
  countTraffic(context, traffic);
  context.every(TRAFFIC_SECONDS, () => traffic.save());
  context.onClose(() => traffic.save());
  return traffic;
}

type Settings = () => MonitoringSettings;

interface LogDeps {
  readonly serverLog: ServerLog;
  readonly stopping: AbortSignal;
  readonly nodes: OtherNodes | undefined;
  readonly settings: Settings;
}

function mountLog(context: PluginContext, { serverLog: log, stopping, nodes, settings }: LogDeps): void {
  const tail = new LogTail(log);
  context.every(BEAT_SECONDS, () => tail.beat());
  context.onClose(() => tail.close());
  stopping.addEventListener('abort', () => tail.close(), { once: true });
  const search = new LogSearch(log, () => settings().logs.maxSearchBytes);
  context.http.mount(logEndpoints({ search, tail, clock: context.clock, nodes }));
}

interface SystemDeps {
  readonly configuration: Configuration;
  readonly settings: Settings;
  readonly stalls: StallRecorder;
  readonly stallWatch: StallWatch;
}

function recordStalls(
  { metrics, onClose }: PluginContext,
  stallWatch: StallWatch,
  options: MonitoringSettings,
): StallRecorder {
  const counter = metrics.counter('event_loop_stalls_total', 'Times in which the event loop was blocked for too long.');
  const stalls = new StallRecorder({ stallWatch, count: () => counter.inc() });
  onClose(() => stalls.close());
  stalls.watch(options.eventLoop.recordStallsAboveMs);
  return stalls;
}

async function mountSystem(
  context: PluginContext,
  { configuration: place, settings, stalls, stallWatch }: SystemDeps,
): Promise<void> {
  const { clock, http, log } = context;
  const shown = (): readonly string[] => settings().environment.show;
  const threads = new ThreadDumps(clock);
  http.mount(systemEndpoints({ configuration: place, environment: new Environment(), shown, threads, stalls }));
  const folder = await context.folder('heapdumps');
  const keep = (): number => settings().heapDumps.keep;
  const dumps = new HeapDumps({ folder, keep, clock, log, stallWatch });
  await dumps.sweep();
  watchFolder('heapdumps', place.data, { heapdumps: isOwnDump }, context);
  http.mount(heapDumpEndpoints(dumps));
}
