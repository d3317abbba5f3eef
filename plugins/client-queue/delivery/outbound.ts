import { setMaxListeners } from 'node:events';
import type { Clock } from '../../../core/clock.js';
import { type Duties, type PaceLimits, type SiteShares, undividedShares } from '../../../core/contracts/cluster.js';
import type { LocalDelivery } from '../../../core/contracts/local-delivery.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import { pluralize } from '../../../core/text/format.js';
import type { HopFinder } from '../../../core/dns/next-hop.js';
import type { HealthReport } from '../../../core/contracts/health.js';
import type { Log } from '../../../core/log/log.js';
import type { PluginContext } from '../../../core/plugin.js';
import { problem } from '../../../core/problem.js';
import type { ClientDeadlines } from '../../../core/smtp/client/remote-server.js';
import { ClientPool } from '../../../core/smtp/client/pool.js';
import type { ClientSession } from '../../../core/smtp/client/session.js';
import { NoticeSender } from '../dsn/notice-sender.js';
import { outboundMetrics, QueueFiguresSource } from './outbound-metrics.js';
import type { ClientQueueSettings } from '../options.js';
import { DeadHosts } from './dead-hosts.js';
import { AttemptRunner } from './attempts.js';
import type { DestinationControls } from './destination-controls.js';
import { DestinationRules } from './destination.js';
import { DkimSigner } from './dkim.js';
import { outgoingContent, sevenBitContent } from './outgoing-message.js';
import { NextHops } from './next-hops.js';
import type { RemoteAttemptContext } from './remote-attempt.js';
import { ReplyClassification } from './reply-classification.js';
import { RetrySchedule } from './retry-schedule.js';
import { Scheduler } from './scheduler.js';
import { Sites } from './sites.js';

interface OutboundInput {
  readonly queue: RelayQueue;
  readonly controls: DestinationControls;
  /** Absent: this server is alone. */
  readonly shares?: SiteShares | undefined;
  readonly duties?: Duties | undefined;
  /** `forget`: drops cached DNS answers. */
  readonly finder: HopFinder & { forget?(): void };
  readonly local: LocalDelivery;
  readonly submission: SubmissionService;
  readonly hostname: string;
  readonly settings: OutboundSettings;
  readonly metrics: PluginContext['metrics'];
  /** Counts TLS of connections. */
  readonly tlsResult?: RemoteAttemptContext['tlsResult'];
  /** Default: those of the client. */
  readonly deadlines?: Partial<ClientDeadlines>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Limits and state of a site; `now` is undefined when nothing was sent there lately. */
export interface SiteState extends PaceLimits {
  readonly now: ReturnType<Scheduler['pace']>;
}

/** Time for running attempts when the worker stops. */
const maxGraceMs = 10_000;
/** Maximum number that wait for a connection of the pool. */
const waiting = 10_000;

/** The worker of the queue: scheduler, connections, notices. */
export class Outbound {
  readonly #input: OutboundInput;
  readonly #abort = new AbortController();
  readonly #sessions = new Set<ClientSession>();
  readonly #dead: DeadHosts;
  readonly #hops: NextHops;
  readonly #sites: Sites;
  readonly #runner: AttemptRunner;
  readonly #scheduler: Scheduler;
  readonly #notices: NoticeSender;
  readonly #figures: QueueFiguresSource;
  #pool: ClientPool;
  #stopped = false;

  constructor(input: OutboundInput) {
    this.#input = input;
    const { queue, controls, local, finder, hostname, clock, log, settings } = input;
    // Aborts connections that are being opened.
    setMaxListeners(0, this.#abort.signal);
    const shared = { queue, clock, log };
    this.#pool = this.#newPool();
    this.#dead = new DeadHosts(clock);
    this.#hops = new NextHops({ finder, clock, hostname, settings: () => settings.current, log });
    this.#sites = new Sites({ hops: this.#hops, clock, settings: () => settings.current });
    this.#figures = new QueueFiguresSource(queue, clock);
    const metrics = outboundMetrics(
      input.metrics,
      () => this.#figures.get(),
      () => this.#pool.statistics(),
    );
    const classification = () => settings.classification;
    this.#notices = new NoticeSender({
      ...shared,
      submission: input.submission,
      duties: input.duties,
      hostname,
      metrics,
      from: `mailer-daemon@${hostname}`,
      destinationOf: (address) => settings.rules.keyOf(address),
    });
    const outgoing = { queue, signer: () => settings.signer, clock };
    this.#runner = new AttemptRunner({
      ...shared,
      hostname,
      metrics,
      schedule: () => settings.schedule,
      keepDeadLetterMs: () => settings.current.keepDeadLetters * 1000,
      remote: {
        hops: this.#hops,
        dead: this.#dead,
        classification,
        clock,
        signal: this.#abort.signal,
        sessions: this.#sessions,
        deadlines: input.deadlines,
        tlsResult: input.tlsResult,
        pool: { lease: (destination, options) => this.#pool.lease(destination, options) },
        content: (lease) => outgoingContent(lease, outgoing),
        sevenBitContent: (lease) => sevenBitContent(lease, outgoing),
      },
      local: { ...shared, local, classification },
      noticed: () => void this.#notices.run(),
    });
    this.#scheduler = new Scheduler({
      ...shared,
      controls,
      shares: input.shares ?? undividedShares,
      sites: this.#sites,
      settings: () => settings.current,
      attempt: (attempt, connections) => this.#runner.attempt(attempt, connections),
      trim: (site, connections) => this.#pool.trim(site, connections),
      settle: (lease, tried) => this.#runner.settle(lease, tried),
    });
  }

  /** Send notifications left pending by a crash first. */
  async start(): Promise<void> {
    await this.#notices.run();
    if (!this.#stopped) this.#scheduler.start();
  }

  /** Which destinations share servers. */
  get sites(): Pick<Sites, 'peek' | 'find'> {
    return this.#sites;
  }

  /** The servers that were found last for a destination. */
  get hops(): Pick<NextHops, 'find' | 'last'> {
    return this.#hops;
  }

  /** Limits and state of a site. */
  pace(site: string): SiteState {
    return { ...this.#scheduler.limits(site), now: this.#scheduler.pace(site) };
  }

  /** Sends pending notifications; an operator has just caused some. */
  sendNotices(): void {
    void this.#notices.run();
  }

  async housekeep(): Promise<void> {
    this.#scheduler.returnOverdue();
    const { queue, clock, duties } = this.#input;
    if (duties?.has('queue.housekeeping') !== false) await queue.housekeep(clock.now());
    await this.#notices.run();
  }

  /** Applies new options: drops what was learnt under the old ones; open connections finish their mail. */
  renew(): void {
    this.#hops.forget();
    this.#sites.forget();
    this.#dead.forget();
    const old = this.#pool;
    this.#pool = this.#newPool();
    void old.close();
  }

  /** An operator demands a retry: servers may be back, or others. All destinations if none is named. */
  forgetFailures(destinations?: readonly string[]): void {
    this.#input.finder.forget?.();
    this.#hops.forget(destinations);
    this.#sites.forget(destinations);
    if (destinations === undefined) this.#dead.forget();
    else for (const destination of destinations) void this.#revive(destination);
  }

  /** The next attempt needs its servers as well. */
  async #revive(destination: string): Promise<void> {
    const found = await this.#hops.find(destination);
    if (found.outcome === 'failed') return;
    for (const server of found.servers) this.#dead.remove(server);
  }

  /** Stops fetching work. */
  pause(): void {
    this.#stopped = true;
    this.#scheduler.stop();
  }

  /** Running attempts finish within the given time, or are returned. */
  async stop(remainingMs = Infinity): Promise<void> {
    this.pause();
    const timer = setTimeout(() => this.#abortAttempts(), Math.min(maxGraceMs, remainingMs));
    await this.#scheduler.idle();
    clearTimeout(timer);
    await this.#pool.close();
    await this.#notices.stop();
  }

  #abortAttempts(): void {
    this.#abort.abort();
    this.#scheduler.cutAll();
    for (const session of this.#sessions) session.close();
  }

  /** Figures of the queue, a few seconds old. */
  queueFigures(): Readonly<Record<string, number>> {
    const counts = this.#figures.last;
    const open = { open: this.#input.queue.size };
    if (counts === undefined) return open;
    const { queued, active, deferred, held } = counts.byState;
    return { ...open, queued, active, deferred, held, oldestSeconds: Math.floor(counts.oldestAge) };
  }

  poolFigures(): Readonly<Record<string, number>> {
    return { ...this.#pool.statistics() };
  }

  health(): HealthReport {
    const { unsettled } = this.#runner;
    const due = this.#input.queue.nextDue();
    const nextDue =
      due === null ? {} : { nextDueSeconds: Math.max(0, Math.ceil((due - this.#input.clock.now()) / 1000)) };
    const figures = { running: this.#scheduler.trying, unrecorded: unsettled, ...nextDue };
    if (this.#scheduler.fault !== undefined) return { status: 'down', why: this.#scheduler.fault, figures };
    if (unsettled > 0) {
      return {
        status: 'degraded',
        why: `What came of ${pluralize(unsettled, 'attempt')} cannot be written to the disk yet.`,
        figures,
      };
    }
    return { status: 'up', figures };
  }

  #newPool(): ClientPool {
    const { maxConnections, destination } = this.#input.settings.current;
    return new ClientPool(
      {
        connections: maxConnections,
        connectionsEach: maxConnections,
        waiting,
        idleMs: destination.idleSeconds * 1000,
        uses: destination.messagesPerConnection,
      },
      this.#input.clock,
    );
  }
}

/** The options in force, and what is built from them. */
export class OutboundSettings {
  #current: ClientQueueSettings;
  #rules: DestinationRules;
  #schedule: RetrySchedule;
  #classification: ReplyClassification;
  #signer: DkimSigner;
  readonly #folder: string;

  /**
   * @param folder what relative paths of keys are relative to
   * @throws Problem `invalid` for options that do not fit together, or a key that cannot be used
   */
  constructor(settings: ClientQueueSettings, folder: string) {
    refuseUnknownRoute(settings);
    refuseUntrustedDane(settings);
    this.#folder = folder;
    this.#signer = new DkimSigner(settings.dkim, folder);
    this.#current = settings;
    this.#rules = new DestinationRules(settings);
    this.#schedule = new RetrySchedule(settings.retry);
    this.#classification = new ReplyClassification(settings.replyRules);
  }

  get current(): ClientQueueSettings {
    return this.#current;
  }

  get rules(): DestinationRules {
    return this.#rules;
  }

  get schedule(): RetrySchedule {
    return this.#schedule;
  }

  get classification(): ReplyClassification {
    return this.#classification;
  }

  get signer(): DkimSigner {
    return this.#signer;
  }

  /** All or nothing. @throws as the constructor */
  change(settings: ClientQueueSettings): void {
    const made = new OutboundSettings(settings, this.#folder);
    this.#current = settings;
    this.#rules = made.rules;
    this.#schedule = made.schedule;
    this.#classification = made.classification;
    this.#signer = made.signer;
  }
}

function refuseUnknownRoute({ routes, defaultRoute }: ClientQueueSettings): void {
  if (defaultRoute === undefined || Object.hasOwn(routes, defaultRoute)) return;
  throw problem(
    'invalid',
    `plugins.client-queue.defaultRoute names the route ${defaultRoute}, which is not among its routes.`,
  );
}

/** Name servers that the operator has not chosen may mark any answer as validated. */
function refuseUntrustedDane({ dane, resolver }: ClientQueueSettings): void {
  if (!dane || resolver.servers !== undefined) return;
  throw problem(
    'invalid',
    'plugins.client-queue.dane needs plugins.client-queue.resolver.servers: name servers that validate DNSSEC and that you trust, such as one on this machine.',
  );
}
