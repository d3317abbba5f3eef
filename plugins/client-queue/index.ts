import { targets } from '../../core/contracts/targets.js';
import { dirname, join } from 'node:path';
import type { DeliveryTarget } from '../../core/pipeline/delivery-target.js';
import { lifecycle, configuration, type Configuration } from '../../core/contracts/server.js';
import { localDelivery } from '../../core/contracts/local-delivery.js';
import { queue as queueService } from '../../core/contracts/mail-queue.js';
import { messageViewer } from '../../core/contracts/message-viewer.js';
import { type Cluster, cluster, documents, type Documents, duties, siteShares } from '../../core/contracts/cluster.js';
import { relayQueue } from '../../core/contracts/relay-queue.js';
import {
  type OpenedRelayQueue,
  type QueueBounds,
  relayQueueStore,
  type RelayQueueStore,
} from '../../core/contracts/relay-queue-store.js';
import { submission, type SubmissionService } from '../../core/contracts/submission.js';
import type { Clock } from '../../core/clock.js';
import type { Resolver } from '../../core/dns/resolver.js';
import { fileDocuments } from '../../core/disk/document.js';
import { watchFolder } from '../../core/host/unknown-entries.js';
import { definePlugin, type PluginContext } from '../../core/plugin.js';
import { parseNetworks } from '../../core/net/networks.js';
import { isOwnUpload } from './case/upload-store.js';
import { clientDeps } from './http/client-deps.js';
import { openDestinationControls } from './delivery/destination-controls.js';
import { MailFinder } from './delivery/mail-finder.js';
import { dkimCheck, queueCheck, resolverCheck } from './doctor-checks.js';
import { ClientQueueOptions, type ClientQueueSettings } from './options.js';
import { Outbound, OutboundSettings } from './delivery/outbound.js';
import { queueCommand } from './queue-command.js';
import { BulkJobs } from './queue/bulk-jobs.js';
import { openInTime, openRelayQueue } from './queue/open-relay-queue.js';
import { defaultLongestPauseMs } from './queue/upkeep.js';
import { PolicedFinder, StsPolicies } from './mta-sts/sts-policies.js';
import { TlsReporter } from './tls-reports/reporter.js';
import { TlsResults } from './tls-reports/tls-results.js';
import { mailQueue } from './delivery/mail-queue.js';
import type { RemoteAttemptContext } from './delivery/remote-attempt.js';
import { explainRelay, relayHook, relayTarget, outcomeEvent } from './delivery/relay-hook.js';
import { queueTargets } from './delivery/relay-target.js';
import { clientEndpoints } from './http/routes.js';

/** Policies of other domains that a kill takes away are fetched again; counts of TLS are lost. */
const saveSeconds = 60;

const pages = [
  {
    title: 'Queue',
    href: '/client/queue/list',
    section: '/client/queue',
    order: 25,
    role: 'read',
    group: 'Delivery',
  },
  {
    title: 'Destinations',
    href: '/client/destinations',
    order: 26,
    role: 'read',
    group: 'Delivery',
  },
  { title: 'Send mail', href: '/client/send', order: 29, role: 'operate', group: 'Delivery' },
] as const;

/** Mail for other servers: who may send it, the queue it waits in, and the worker that delivers it. */
export const clientQueue = definePlugin({
  name: 'client-queue',
  options: ClientQueueOptions,
  needs: { configuration, lifecycle, localDelivery, submission },
  uses: { messageViewer, relayQueueStore, cluster, documents, siteShares, duties },
  provides: { relayQueue, queue: queueService },
  commands: [queueCommand],
  checks: [queueCheck, resolverCheck, dkimCheck],
  verify: (options, { folder }) => void new OutboundSettings(options, folder),
  async setup(
    context,
    { options, configuration, lifecycle, localDelivery, submission, messageViewer: viewer, ...given },
  ) {
    const { log, smtp, metrics, onClose } = context;
    const { data, hostname } = configuration;
    const settings = new OutboundSettings(options, configuration.file === null ? '.' : dirname(configuration.file));
    const { queue, clock } = await openQueue(context, options, lifecycle.started, given);
    queue.onOutcome((outcome) => smtp.tell(() => outcomeEvent(outcome)));
    const documents = given.documents ?? fileDocuments(data);
    const controls = await openDestinationControls(documents.get('destinations'), clock);
    const jobs = await BulkJobs.open({ file: join(data, 'queue-jobs.json'), clock, log });
    onClose(() => jobs.stop());
    const mailFinder = new MailFinder(options, configuration, clock);
    const policies = await openPolicies(context, documents, mailFinder, settings);
    const finder = new PolicedFinder(mailFinder, policies);
    const shared = { queue, controls, settings, finder, submission, clock };
    const reported = { configuration, submission, policies, settings, resolver: () => mailFinder.resolver };
    const tlsResult = await openReports(context, lifecycle.started, reported);
    const cluster = { shares: given.siteShares, duties: given.duties };
    const outbound = new Outbound({ ...shared, ...cluster, local: localDelivery, hostname, tlsResult, metrics, log });
    onClose(() => outbound.stop(lifecycle.remainingMs()));

    follow(configuration, onClose, () => {
      if (mailFinder.prepare()()) outbound.forgetFailures();
    });
    const authority = relayAuthority(configuration, onClose);
    const refusal = () => queue.refusal?.();
    const hook = relayHook({ ...authority, rules: () => settings.rules, local: localDelivery, refusal });
    smtp.on('rcptTo', { order: 'route', before: 'users', after: '*' }, hook);
    const targets = queueTargets({
      queue,
      local: localDelivery,
      clock,
      settings: () => settings.current,
      firstPause: () => settings.schedule.pause(1),
      speaksLmtp: (route) => settings.current.routes[route]?.protocol === 'lmtp',
    });
    registerTargets(smtp, targets, { ...finderOf(queue), explain: explainRelay(outbound.hops, controls) });
    const site = clientDeps({
      ...shared,
      policies,
      hops: outbound.hops,
      configuration,
      uploads: await openUploads(context, data),
      forgetFailures: (destinations) => outbound.forgetFailures(destinations),
      sites: outbound.sites,
      pace: (key) => outbound.pace(key),
      jobs,
      viewer,
      sendNotices: () => outbound.sendNotices(),
    });
    context.http.mount(clientEndpoints(site));
    for (const link of pages) context.http.navigate(link);

    lookAfter(context, queue, outbound, () => settings.current.housekeepingInterval);
    lifecycle.stopping.addEventListener('abort', () => outbound.pause(), { once: true });
    void lifecycle.started.then(() => outbound.start());
    return {
      relayQueue: queue,
      queue: mailQueue({ queue, submission, rules: () => settings.rules, outbound, clock }),
      reconfigure(changed: ClientQueueSettings) {
        const useResolver = mailFinder.prepare(changed);
        settings.change(changed);
        useResolver();
        queue.bound(boundsOf(changed));
        outbound.renew();
        log.info('the options of client-queue are in force');
      },
    };
  },
});

/** The queue of a plugin, of the cluster, or in files, and the time that it goes by. */
async function openQueue(
  context: PluginContext,
  options: ClientQueueSettings,
  ready: Promise<void>,
  given: { readonly relayQueueStore?: RelayQueueStore; readonly cluster?: Cluster },
): Promise<{ readonly queue: OpenedRelayQueue; readonly clock: Clock }> {
  const store = given.relayQueueStore ?? (await sharedStore(context, given.cluster)) ?? fileStore(context);
  const queue = await store.open({ bounds: boundsOf(options), owner: relayTarget, ready });
  context.onClose(() => queue.close());
  return { queue, clock: store.clock ?? context.clock };
}

/** Undefined for a server that is alone. */
async function sharedStore(context: PluginContext, shared: Cluster | undefined): Promise<RelayQueueStore | undefined> {
  if (shared === undefined) return undefined;
  const { postgresStore } = await import('./postgres/open-postgres-queue.js');
  return postgresStore(context, shared);
}

function lookAfter(
  { health, every, clock, metrics }: PluginContext,
  queue: OpenedRelayQueue,
  outbound: Outbound,
  pauseSeconds: () => number,
): void {
  health.check('queue', () => {
    const why = queue.complaint();
    const figures = () => outbound.queueFigures();
    if (why === undefined) return { status: 'up', figures };
    return { status: 'degraded', why, figures, page: '/client/queue/list?state=held' };
  });
  health.check('pool', () => ({ status: 'up', figures: () => outbound.poolFigures() }));
  health.check('scheduler', () => ({ ...outbound.health(), page: '/client/destinations' }));
  metrics.gauge('queue_quarantined_files', 'Files in the quarantine of the queue.', [], (gauge) => {
    gauge.set(queue.figures().quarantined);
  });
  metrics.gauge('queue_damaged_entries', 'Entries held because of damage or crashes.', [], (gauge) => {
    gauge.set(queue.figures().damaged);
  });
  const isTime = rhythm(clock, pauseSeconds);
  every(1, () => (isTime() ? outbound.housekeep() : undefined));
}

type Targets = ReturnType<typeof queueTargets>;

function registerTargets(
  smtp: PluginContext['smtp'],
  { relay, queue, retry, bounce, hold }: Targets,
  ofRelay: Pick<DeliveryTarget, 'finder' | 'explain'>,
): void {
  smtp.deliverTo(relayTarget, { ...relay, ...ofRelay });
  smtp.deliverTo(targets.queue, queue);
  smtp.deliverTo(targets.retry, retry);
  smtp.deliverTo(targets.bounce, bounce);
  smtp.deliverTo(targets.hold, hold);
}

function finderOf(queue: OpenedRelayQueue): Pick<DeliveryTarget, 'finder'> {
  const locate = queue.locate?.bind(queue);
  return locate === undefined ? {} : { finder: () => locate };
}

/** Keeps the queue in files. */
function fileStore({ folder, clock, log }: PluginContext): RelayQueueStore {
  return {
    async open({ bounds, owner, ready }) {
      const path = await folder('queue');
      const open = () => openRelayQueue({ folder: path, clock, log, owner, ready, ...bounds });
      return openInTime(path, { started: ready, open, log });
    },
  };
}

async function openPolicies(
  { clock, log, metrics, every, onClose }: PluginContext,
  documents: Documents,
  finder: MailFinder,
  settings: OutboundSettings,
): Promise<StsPolicies> {
  const fetches = metrics.counter('outbound_mta_sts_fetches_total', 'Tries to fetch an MTA-STS policy.', ['result']);
  const fetched = (result: string): void => fetches.inc({ result });
  const resolver = (): Resolver => finder.resolver;
  const document = documents.get('mta-sts');
  const policies = await StsPolicies.open({
    document,
    resolver,
    settings: () => settings.current,
    fetched,
    clock,
    log,
  });
  every(saveSeconds, () => policies.save());
  onClose(() => policies.save());
  return policies;
}

/** Counts TLS of connections, and reports the counts to the domains that ask for them. */
async function openReports(
  { clock, log, metrics, health, every, onClose }: PluginContext,
  started: Promise<void>,
  given: {
    readonly configuration: Configuration;
    readonly submission: SubmissionService;
    readonly policies: StsPolicies;
    readonly settings: OutboundSettings;
    readonly resolver: () => Resolver;
  },
): Promise<RemoteAttemptContext['tlsResult']> {
  const { configuration, policies, settings, submission, resolver } = given;
  const { data, hostname } = configuration;
  const sent = metrics.counter('outbound_tls_reports_total', 'Tries to send a report about TLS.', ['result']);
  const results = await TlsResults.open(join(data, 'tls-results.json'), { clock, log });
  const reporter = new TlsReporter({
    results,
    submission,
    resolver,
    settings: () => settings.current,
    hostname,
    domain: () => configuration.domains[0] ?? hostname,
    signs: (domain) => settings.signer.signs(domain),
    tried: (result) => sent.inc({ result }),
    clock,
    log,
  });
  onClose(() => reporter.stop());
  health.check('tls-reports', () => reporter.health());
  let isStarted = false;
  void started.then(() => {
    isStarted = true;
    return reporter.run();
  });
  every(saveSeconds, () => (isStarted ? reporter.run() : undefined));
  return (domain, server, agreed) => {
    if (!settings.current.tlsReports.send) return;
    const { dane } = server.tls;
    results.record(domain, server, agreed, { policy: policies.peek(domain), fault: policies.fault(domain), dane });
  };
}

async function openUploads(context: PluginContext, data: string): Promise<string> {
  const name = 'client-uploads';
  const folder = await context.folder(name);
  watchFolder(name, data, { [name]: isOwnUpload }, context);
  return folder;
}

function boundsOf(settings: ClientQueueSettings): QueueBounds {
  const { keepFinished, maxEntries, keepDeadLetters, quarantineSeconds, quarantineBytes, retry } = settings;
  return {
    keepFinishedMs: keepFinished * 1000,
    maxEntries,
    keepDeadLetterMs: keepDeadLetters * 1000,
    quarantineMs: quarantineSeconds * 1000,
    quarantineBytes,
    maxPauseMs: Math.max(defaultLongestPauseMs, retry.maxSeconds * 1500, retry.firstSeconds * 1500),
  };
}

/** True when so many seconds have passed since it was true last. */
function rhythm(clock: PluginContext['clock'], seconds: () => number): () => boolean {
  let last = clock.monotonic();
  return () => {
    // Half a second is the play of whoever asks.
    const isTime = clock.monotonic() - last >= seconds() * 1000 - 500;
    if (isTime) last = clock.monotonic();
    return isTime;
  };
}

function follow(configuration: Configuration, onClose: PluginContext['onClose'], changed: () => void): void {
  const unwatch = configuration.watch?.(changed);
  onClose(() => unwatch?.());
}

/** Who may relay what, as the configuration says now. */
function relayAuthority(configuration: Configuration, onClose: PluginContext['onClose']) {
  const read = () => ({
    domains: new Set(configuration.domains),
    networks: parseNetworks(configuration.relayNetworks),
  });
  let known = read();
  follow(configuration, onClose, () => {
    known = read();
  });
  return { localDomains: () => known.domains, relayNetworks: () => known.networks };
}
