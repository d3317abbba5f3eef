import { join } from 'node:path';
import { type Clock, systemTimers, type Timers } from './clock.js';
import { LiveConfiguration } from './config/live.js';
import type { LoadedConfiguration } from './config/load.js';
import type { DeliveryTarget } from './pipeline/delivery-target.js';
import { keptSessions } from './contracts/browser-sessions.js';
import { attemptLimits, type AttemptLimits, documents } from './contracts/cluster.js';
import { dns } from './contracts/dns.js';
import { explaining } from './contracts/explaining.js';
import {
  lifecycle,
  type Lifecycle,
  catalogue,
  type Catalogue,
  configuration,
  healthOverview,
  type LayerFile,
  metricsExposition,
  reloading,
  type Reloading,
} from './contracts/server.js';
import { keptAnswers } from './contracts/http-records.js';
import { localDelivery } from './contracts/local-delivery.js';
import { forwardedRequests, otherNodes } from './contracts/other-nodes.js';
import { pluginsOverview } from './contracts/plugins-overview.js';
import { serverCertificate } from './contracts/server-certificate.js';
import { serverLog } from './contracts/server-log.js';
import { stallWatch, type StallWatch } from './contracts/stall-watch.js';
import { accountList } from './contracts/accounts.js';
import { signInHistory } from './contracts/sign-in-history.js';
import { submission } from './contracts/submission.js';
import { AttemptLimitRegistry } from './auth/rate.js';
import { FileSignInHistory } from './auth/sign-in-history.js';
import { nodeFiles } from './disk/file-layer.js';
import { watchDataFolder } from './host/data-folder.js';
import { openPluginDns } from './dns/plugin-dns.js';
import type { Resolver } from './dns/resolver.js';
import type { HealthReport } from './contracts/health.js';
import { HealthRegistry } from './host/health.js';
import { packageRoot, version } from './host/installation.js';
import { contextFactory } from './host/plugin-context.js';
import { PluginFaults } from './host/plugin-faults.js';
import { PluginHost } from './host/plugin-host.js';
import { type PluginTrackerDeps, PluginTracker } from './host/plugin-states.js';
import { Reload } from './host/reload.js';
import type { FaultSink } from './host/running-plugin.js';
import { provide, type Service } from './contracts/service.js';
import { refuseStartWithoutRequired, SiteMemory } from './host/site-memory.js';
import type { Accounts } from './http/accounts.js';
import { AuditFile, type AuditSink } from './http/shell/audit.js';
import { createHttpShell, type HttpShell, type ShellInput } from './http/shell/shell.js';
import type { OpenedLog } from './log/log.js';
import { Metrics } from './metrics/metrics.js';
import { ServerCertificate } from './net/server-certificate.js';
import type { InheritedSockets } from './net/inherited-sockets.js';
import { PipelineExplaining } from './pipeline/explain.js';
import { PipelineDelivery, PipelineSubmission, type SubmissionInput } from './pipeline/submission.js';
import { Pipeline } from './pipeline/pipeline.js';
import type { HookObserver } from './pipeline/hook-runner.js';
import { createSmtpEngine, type SmtpEngine } from './smtp/server/listeners.js';
import { type FileSpool, openSpool } from './spool/file-spool.js';
import { type FindLinked, findAtTarget } from './spool/restoration.js';
import { codeLocationsOf, noWatchdog, type Watchdog } from './watchdog/watchdog.js';

/** How often a degraded spool retries to write. */
const probeEveryMs = 10_000;

/** Services that core provides to plugins. */
export const coreServices: readonly Service<unknown>[] = [
  configuration,
  reloading,
  healthOverview,
  metricsExposition,
  serverLog,
  lifecycle,
  localDelivery,
  submission,
  signInHistory,
  attemptLimits,
  accountList,
  catalogue,
  dns,
  explaining,
  stallWatch,
  pluginsOverview,
  serverCertificate,
  forwardedRequests,
];

interface AppInput {
  readonly configuration: LoadedConfiguration;
  /** Reads the configuration again for a reload. */
  readonly load: (layers?: readonly LayerFile[]) => Promise<LoadedConfiguration>;
  readonly accounts: Accounts;
  readonly log: OpenedLog;
  readonly clock: Clock;
  /** Detects stalls of the event loop; none if absent. */
  readonly watchdog?: Watchdog;
  /** Sockets inherited from a service manager; none if absent. */
  readonly sockets?: InheritedSockets;
  readonly overrides?: TestOverrides;
}

/** What tests replace. */
interface TestOverrides {
  readonly timers?: Timers;
  /** DNS resolver of plugins. */
  readonly resolver?: Resolver;
  /** Receives each verdict of a hook. */
  readonly observe?: HookObserver;
  /** Time limit of hooks that set none. */
  readonly timeLimitMs?: number;
  /** Health registry for listeners that tests never bind. */
  readonly listenerHealth?: HealthRegistry;
}

/** A server with its plugins started. */
export interface App {
  readonly http: HttpShell;
  readonly smtp: SmtpEngine;
  readonly pipeline: Pipeline;
  readonly plugins: PluginHost;
  readonly configuration: LiveConfiguration;
  readonly reloading: Reloading;
  /** Opens HTTP first, so that an operator can look when SMTP does not come up. */
  listen(): Promise<void>;
  /**
   * Stops accepting, lets sessions finish within the configured time, then closes in reverse order. Pages still answer
   * while sessions finish; /health says 503, so that a load balancer knows.
   */
  close(): Promise<void>;
}

/** Creates the services and starts the plugins; listeners open later. Closes what had started when a part fails. */
export async function createApp(input: AppInput): Promise<App> {
  const { clock, overrides: { timers = systemTimers, resolver } = {} } = input;
  const { data, hostname } = input.configuration;
  const { log } = input.log;
  const live = new LiveConfiguration(input.configuration, log);
  const metrics = new Metrics();
  const health = new HealthRegistry({ clock });
  const life = openLifecycle(input, health);
  const unknownEntries = watchDataFolder(data, { health, clock, log });
  const { pipeline, tracker, hosting } = openPipeline(input, { live, health, host: () => plugins });
  const certificate = await ServerCertificate.open(data, { hostname, now: clock.now() });
  const { spool, closeSpool } = await openSupervisedSpool(input, health);
  const signIns = await FileSignInHistory.open({ folder: join(data, 'sign-ins'), clock, log });
  const opened = { certificate, signIns, spool, pipeline, metrics, health };
  const { http, smtp, audit, limits } = openProtocols(input, opened, () => plugins);
  const reload = new Reload({ ...input, live, plugins: () => plugins, tracker, http, audit, smtp, log });
  const plugins = new PluginHost({
    wanted: input.configuration,
    provided: [
      provide(configuration, live),
      provide(reloading, reload),
      provide(healthOverview, health),
      provide(metricsExposition, metrics.exposition),
      provide(serverLog, input.log.source),
      provide(lifecycle, life),
      provide(localDelivery, new PipelineDelivery({ pipeline, spool, clock })),
      provide(submission, submissionOf({ pipeline, spool, hostname, clock, log }, live)),
      provide(signInHistory, signIns),
      provide(attemptLimits, limits),
      provide(accountList, input.accounts),
      provide(catalogue, catalogueOf({ http, smtp, pipeline })),
      provide(dns, openPluginDns({ live, clock, timers, resolver })),
      provide(explaining, explainingOf(live, pipeline, clock)),
      provide(stallWatch, connectWatchdog(input.watchdog, live, health)),
      provide(pluginsOverview, tracker.states),
      provide(serverCertificate, certificate),
      provide(forwardedRequests, http),
    ],
    contextOf: contextFactory({ data, log, clock, timers, metrics, health, pipeline, http }),
    ...hosting,
  });
  live.setWaitingPlugins((next) => plugins.waiting(next));
  async function close(): Promise<void> {
    life.end(live.current.settings.shutdownSeconds * 1000);
    await smtp.close(life.remainingMs());
    await http.close(life.remainingMs());
    await plugins.stop();
    await Promise.all([signIns.close(), closeSpool()]);
  }

  try {
    await startPlugins(plugins, tracker, input.accounts);
    await spool.recover(() => placementFinder(pipeline));
    life.begin();
  } catch (error) {
    await plugins.stop();
    await closeSpool();
    throw error;
  }
  return {
    http,
    smtp,
    pipeline,
    plugins,
    configuration: live,
    reloading: reload,
    listen: () => listenInTurn(http, unknownEntries, smtp),
    close,
  };
}

function submissionOf(input: Omit<SubmissionInput, 'longLines'>, live: LiveConfiguration): PipelineSubmission {
  return new PipelineSubmission({ ...input, longLines: () => live.current.settings.smtp.longLines });
}

async function listenInTurn(
  http: HttpShell,
  unknownEntries: { look(): Promise<void> },
  smtp: SmtpEngine,
): Promise<void> {
  await http.listen();
  await smtp.listen();
  void unknownEntries.look();
  http.compressAssets();
}

/** HTTP and SMTP, whose listeners open later. */
function openProtocols(
  input: AppInput,
  opened: Omit<SmtpDeps, 'attemptLimits'>,
  plugins: () => Pick<PluginHost, 'find'>,
) {
  const limits = new AttemptLimitRegistry();
  const audit = openAudit(input);
  const parts = { ...opened, attemptLimits: limits };
  const http = openHttp(input, {
    ...parts,
    audit,
    sharedAnswers: () => plugins().find(keptAnswers),
    sharedSessions: () => plugins().find(keptSessions),
    otherNodes: () => plugins().find(otherNodes),
  });
  const smtp = openSmtp(input, { ...parts, health: input.overrides?.listenerHealth ?? opened.health });
  return { http, smtp, audit, limits };
}

function openAudit({ configuration, log }: AppInput): AuditSink {
  const { auditFileBytes, keepAuditFiles } = configuration.settings.log;
  const bounds = { maxFileBytes: auditFileBytes, keepFiles: keepAuditFiles };
  return new AuditFile(join(configuration.data, 'logs'), log.log, bounds);
}

function openHttp(
  { configuration, accounts, log, clock, sockets }: AppInput,
  parts: Pick<SmtpDeps, 'metrics' | 'health' | 'signIns' | 'certificate' | 'attemptLimits'> &
    Required<Pick<ShellInput, 'audit' | 'sharedAnswers' | 'sharedSessions' | 'otherNodes'>>,
): HttpShell {
  const { metrics, health } = parts;
  const { settings, data, hostname, folder } = configuration;
  const http = createHttpShell({
    settings: settings.http,
    accounts,
    log: log.log,
    clock,
    viewsRoot: join(packageRoot, 'views'),
    publicRoot: join(packageRoot, 'public'),
    dataRoot: data,
    version,
    hostname,
    uploadLimit: settings.smtp.limits.messageBytes,
    ...parts,
    metrics: metrics.scope('http'),
    folder,
    ...(sockets !== undefined && { sockets }),
  });
  health.check('core', 'http', () => ({ status: 'up', figures: () => http.figures() }));
  return http;
}

interface SmtpDeps {
  readonly certificate: ServerCertificate;
  readonly signIns: FileSignInHistory;
  readonly attemptLimits: AttemptLimits;
  readonly spool: FileSpool;
  readonly pipeline: Pipeline;
  readonly metrics: Metrics;
  readonly health: HealthRegistry;
}

function openSmtp({ configuration, log, clock, sockets }: AppInput, parts: SmtpDeps): SmtpEngine {
  const { settings, hostname, domains, folder } = configuration;
  const { certificate, signIns, attemptLimits, spool, pipeline, metrics, health } = parts;
  return createSmtpEngine({
    settings: settings.smtp,
    hostname,
    certificate,
    signIns,
    attemptLimits,
    spool,
    pipeline,
    log: log.log,
    clock,
    metrics: metrics.scope('smtp'),
    health,
    domains,
    folder,
    ...(sockets !== undefined && { sockets }),
  });
}

function explainingOf(live: LiveConfiguration, pipeline: Pipeline, clock: Clock): PipelineExplaining {
  const listenerName = (mode: string) =>
    live.current.settings.smtp.listeners.find((listener) => listener.mode === mode)?.name ?? mode;
  return new PipelineExplaining({ pipeline, clock, listenerName });
}

/**
 * The mail pipeline and what tracks the plugins in it.
 *
 * @throws start error when a required plugin is missing
 */
function openPipeline(
  { configuration, log: { log }, clock, overrides }: AppInput,
  parts: Pick<PluginTrackerDeps, 'live' | 'health' | 'host'>,
) {
  const faults = new PluginFaults(clock);
  const failed: FaultSink = (plugin, where, error) => faults.record(plugin, where, error);
  const messageBytes = () => parts.live.current.settings.smtp.limits.messageBytes;
  const pipeline = new Pipeline({ log, clock, failed, messageBytes, ...overrides });
  const memory = new SiteMemory(configuration.data, log);
  refuseStartWithoutRequired(configuration, memory);
  const tracker = new PluginTracker({ ...parts, pipeline, memory, faults, log });
  tracker.applyShadow();
  parts.live.watch(() => tracker.applyShadow());
  const hosting = { log, clock, failed, onSwap: () => tracker.update(), settled: () => pipeline.settled() };
  return { pipeline, tracker, hosting };
}

async function startPlugins(plugins: PluginHost, tracker: PluginTracker, accounts: Accounts): Promise<void> {
  // Reserves the plugins' names in health before a plugin can take them.
  tracker.states.update();
  await plugins.start();
  tracker.update();
  await tracker.remember();
  const shared = plugins.find(documents);
  if (shared !== undefined) await accounts.share(shared.get('http-accounts'));
}

function openLifecycle({ log, clock }: AppInput, health: HealthRegistry): ServerLife {
  const life = new ServerLife(clock);
  health.check('core', 'log', () => log.health());
  health.check('core', 'server', life.health);
  return life;
}

function connectWatchdog(watchdog: Watchdog | undefined, live: LiveConfiguration, health: HealthRegistry): StallWatch {
  if (watchdog === undefined) return noWatchdog;
  health.check('core', 'watchdog', () => watchdog.health());
  const follow = (): void => {
    watchdog.setThresholds(live.current.settings.watchdog);
    watchdog.setCodeLocations(codeLocationsOf(live.current.plugins));
  };
  follow();
  live.watch(follow);
  return watchdog;
}

const catalogueOf = (parts: Pick<App, 'http' | 'smtp'> & { readonly pipeline: Pipeline }): Catalogue => ({
  endpoints: () => parts.http.describe(),
  hooks: () => parts.pipeline.describe(),
  mayOpen: (account, path) => parts.http.mayOpen(account, path),
  listeners: () => parts.smtp.addresses(),
});

/** Reports the spool's health and lets a degraded spool retry. */
async function openSupervisedSpool({ configuration, log: { log }, clock }: AppInput, health: HealthRegistry) {
  const { data, settings } = configuration;
  const spool = await openSpool(join(data, 'spool'), { log, clock, durability: settings.durability });
  health.check('core', 'spool', () => ({ ...spool.report(), figures: () => spool.figures() }));
  const probing = setInterval(() => void spool.probe(), probeEveryMs).unref();
  const closeSpool = async (): Promise<void> => {
    clearInterval(probing);
    await spool.close();
  };
  return { spool, closeSpool };
}

/** Between the start of the plugins and the stop of the server. */
class ServerLife implements Lifecycle {
  readonly started: Promise<void>;
  readonly #stopping = new AbortController();
  readonly #clock: Clock;
  #begin: () => void = () => undefined;
  /** Monotonic. */
  #deadline = Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.started = new Promise((resolve) => (this.#begin = resolve));
  }

  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  begin(): void {
    this.#begin();
  }

  remainingMs(): number {
    return Math.max(0, this.#deadline - this.#clock.monotonic());
  }

  end(graceMs: number): void {
    this.#deadline = this.#clock.monotonic() + graceMs;
    this.#stopping.abort();
  }

  readonly health = (): HealthReport =>
    this.stopping.aborted ? { status: 'down', why: 'The server is stopping.' } : { status: 'up' };
}

/** Asks the target that placed a message where the message is now; by default it is where it was placed. */
function placementFinder(targets: { target(name: string): DeliveryTarget | undefined }): FindLinked {
  const wherePlaced = findAtTarget(nodeFiles);
  const finders = new Map<string | undefined, FindLinked>();
  return (placement, content) => {
    const { owner } = placement;
    const target = owner === undefined ? undefined : targets.target(owner);
    const find = finders.get(owner) ?? target?.finder?.() ?? wherePlaced;
    finders.set(owner, find);
    return find(placement, content);
  };
}
