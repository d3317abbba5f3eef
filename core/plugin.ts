import type { Counter, Gauge, Histogram } from 'prom-client';
import { z } from 'zod';
import type { Clock } from './clock.js';
import type { Command } from './cli/command.js';
import type { DeliveryTarget } from './pipeline/delivery-target.js';
import type { DoctorCheck } from './contracts/doctor-check.js';
import type { HealthCheck } from './contracts/health.js';
import type { AnyEndpoint } from './http/endpoint.js';
import type { Role } from './contracts/accounts.js';
import type { NavigationGroup } from './http/pages.js';
import { definitionKeys, kitVersion } from './host/declaration.js';
import type { Log } from './log/log.js';
import type { Services, ServiceValues } from './contracts/service.js';
import type { Outcome, WatchedEvent, Watcher } from './pipeline/events.js';
import type { Hook, HookOptions } from './pipeline/hook.js';
import type { Stage } from './pipeline/verdict.js';

export { kitVersion };

/** What a plugin registers through its context; undone when the plugin stops. */
export interface PluginContext {
  readonly log: Log;
  readonly clock: Clock;
  readonly http: {
    mount(endpoints: readonly AnyEndpoint[]): void;
    /**
     * A link in the navigation of every page, for accounts that may open it; where no page is mounted at `href`, for those
     * with the role. Links of site plugins follow those of the
     * server, sorted by `order`, then by title, below `Site` unless they name a `group`. The link is the
     * current one on pages below `section`, by default below `href`.
     */
    navigate(link: {
      readonly title: string;
      readonly href: string;
      readonly order: number;
      readonly role: Role;
      readonly group?: NavigationGroup;
      readonly section?: string;
    }): void;
  };
  readonly smtp: {
    on<S extends Stage>(stage: S, hook: Hook<S>): void;
    on<S extends Stage>(stage: S, options: HookOptions, hook: Hook<S>): void;
    watch<E extends WatchedEvent>(event: E, watcher: Watcher<E>): void;
    /**
     * For owners of queued mail: calls the watchers of `outcome` with the durable result of a recipient. `outcome` is
     * called only while there are watchers. Never throws.
     */
    tell(outcome: () => Outcome): void;
    /** Names a target for `route(hop)`. */
    deliverTo(name: string, target: DeliveryTarget): void;
  };
  /** Names get the prefix `postern_`; label values must be few (never an address or a domain). */
  readonly metrics: {
    counter<L extends string>(name: string, help: string, labels?: readonly L[]): Counter<L>;
    gauge<L extends string>(
      name: string,
      help: string,
      labels?: readonly L[],
      collect?: (gauge: Gauge<L>) => void | Promise<void>,
    ): Gauge<L>;
    histogram<L extends string>(
      name: string,
      help: string,
      buckets: readonly number[],
      labels?: readonly L[],
    ): Histogram<L>;
  };
  readonly health: { check(component: string, check: HealthCheck): void };
  /** Runs `task` every `seconds`, never two at once; logs errors. */
  readonly every: (seconds: number, task: () => void | Promise<void>) => void;
  /**
   * A folder of the plugin's own in the data folder: `data/<folder>`, mode 0700. Rejects when another plugin owns it.
   */
  readonly folder: (name: string) => Promise<string>;
  /** Runs when the plugin stops, the last registered first. */
  readonly onClose: (release: () => void | Promise<void>) => void;
}

/** What `setup` may return besides its services. */
export interface Reconfigurable<O> {
  /** Applies new options at run time; throws to refuse them, and the old ones stay active. */
  readonly reconfigure?: (options: O) => void | Promise<void>;
}

type Provided<Provides extends Services, O> = keyof Provides extends never
  ? Reconfigurable<O> | void
  : ServiceValues<Provides> & Reconfigurable<O>;

export interface PluginDefinition<
  O extends z.ZodType,
  Needs extends Services,
  Uses extends Services,
  Provides extends Services,
> {
  /** Lower case words joined by `-`; key of its options, folder of its views, name in every list. */
  readonly name: string;
  /** Schema with defaults, so that `{}` is valid unless something is required. No options if absent. */
  readonly options?: O;
  readonly needs?: Needs;
  /** Like `needs`, but may be missing: then the value is undefined. */
  readonly uses?: Uses;
  readonly provides?: Provides;
  /** Absolute folder of its views, for site plugins; built-ins use `views/<name>`. */
  readonly views?: string;
  /** Absolute folder of files for its pages: in a view, `asset('<name>/style.css')` is the URL of its `style.css`. */
  readonly assets?: string;
  /** Commands: `postern NAME …`. */
  readonly commands?: readonly Command<z.output<O>>[];
  /** Checks of `postern doctor`. */
  readonly checks?: readonly DoctorCheck<z.output<O>>[];
  /** Throws what would make `setup` refuse these options, without side effects: for `postern config check`. */
  verify?(options: z.output<O>, place: { readonly folder: string }): void;
  /** Version of the plugin kit that it is written for, `major.minor`; that of the server if absent. */
  readonly kit?: string;
  /**
   * What a reload does when its code or options have changed. `replace`: sets up a new one beside the old one and swaps
   * them; both exist for a moment. `restart`: nothing until the server restarts. If absent, a site plugin is replaced
   * unless it asked for a `folder`; a built-in one is not.
   */
  readonly reload?: 'replace' | 'restart';
  setup(
    context: PluginContext,
    given: { readonly options: z.output<O> } & ServiceValues<Needs> & Partial<ServiceValues<Uses>>,
  ): Provided<NoInfer<Provides>, z.output<O>> | Promise<Provided<NoInfer<Provides>, z.output<O>>>;
}

/** A command with the type of its options erased. */
export type PluginCommand = Command<unknown>;

/** A check with the type of its options erased. */
export type PluginCheck = DoctorCheck<unknown>;

/** A plugin as the host sees it: branded data, types erased. */
export interface Plugin {
  readonly postern: 'plugin';
  /** A number in old declarations. */
  readonly kit: string | number;
  readonly name: string;
  readonly options: z.ZodType;
  readonly needs: Services;
  readonly uses: Services;
  readonly provides: Services;
  readonly views: string | undefined;
  readonly assets: string | undefined;
  readonly commands: readonly PluginCommand[];
  readonly checks: readonly PluginCheck[];
  readonly verify?: ((options: unknown, place: { readonly folder: string }) => void) | undefined;
  readonly reload: 'replace' | 'restart' | undefined;
  /** Runs in its place where another plugin provides its service. */
  readonly whenProvided?: Plugin;
  /** Runs only where it has options. */
  readonly whenConfigured?: boolean;
  /** Unknown keys of the declaration; absent where it was not made by `definePlugin`. */
  readonly unknownKeys?: readonly string[];
  readonly setup: (context: PluginContext, given: Readonly<Record<string, unknown>>) => unknown;
}

type None = Record<never, never>;

const noOptions = z.strictObject({});

/** Declares a plugin. See docs/plugins.md. */
export function definePlugin<
  O extends z.ZodType = typeof noOptions,
  Needs extends Services = None,
  Uses extends Services = None,
  Provides extends Services = None,
>(definition: PluginDefinition<O, Needs, Uses, Provides>): Plugin {
  const known: Readonly<Record<keyof PluginDefinition<O, Needs, Uses, Provides>, true>> = definitionKeys;
  const { name, options = noOptions, needs = {}, uses = {}, provides = {}, views, assets, reload } = definition;
  return Object.freeze({
    postern: 'plugin',
    kit: definition.kit ?? kitVersion,
    name,
    options,
    needs,
    uses,
    provides,
    views,
    assets,
    commands: definition.commands ?? [],
    checks: definition.checks ?? [],
    verify: (given: unknown, place: { readonly folder: string }) => definition.verify?.(given as z.output<O>, place),
    reload,
    unknownKeys: Object.keys(definition).filter((key) => !Object.hasOwn(known, key)),
    // Not wrapped unless a function, so that the host can refuse it.
    setup:
      typeof definition.setup === 'function'
        ? (context: PluginContext, given: Readonly<Record<string, unknown>>) =>
            definition.setup(context, given as Parameters<typeof definition.setup>[1])
        : ((definition as { readonly setup: unknown }).setup as Plugin['setup']),
  });
}

export function isPlugin(value: unknown): value is Plugin {
  return typeof value === 'object' && value !== null && (value as Partial<Plugin>).postern === 'plugin';
}

export { accept, change, defer, discard, hold, next, reject, route } from './pipeline/verdict.js';
export type { Verdict, Hop, Change } from './pipeline/verdict.js';
/** For the schemas of options and endpoints: a site plugin needs no zod of its own. */
export { z } from 'zod';
export { service } from './contracts/service.js';
export { problem, isProblem } from './problem.js';
export { defineEndpoint, respond } from './http/endpoint.js';
export type { AnyEndpoint, Endpoint, EndpointRequest, Response } from './http/endpoint.js';
export { configurationSources } from './contracts/configuration-source.js';
export { directory } from './contracts/directory.js';
export { advice, fine, skipped, trouble } from './contracts/doctor-check.js';
export type { DoctorCheck, DoctorInput, Finding } from './contracts/doctor-check.js';
export { dns } from './contracts/dns.js';
export type { Dns, DnsAnswer, DnsRecords, DnsType } from './contracts/dns.js';
export { mailboxes } from './contracts/mailboxes.js';
export type { Mailboxes, MailFolder, MessagesPage, StoredMessage } from './contracts/mailboxes.js';
export { messageViewer } from './contracts/message-viewer.js';
export { queue } from './contracts/mail-queue.js';
export { relayQueueStore } from './contracts/relay-queue-store.js';
export type { Lease, OpenedRelayQueue, RelayQueue, RelayQueueStore } from './contracts/relay-queue-store.js';
export type { MailQueue, MessageToQueue, QueuedMessage } from './contracts/mail-queue.js';
export type { Submission, SubmissionService, Submitted } from './contracts/submission.js';
export { submission } from './contracts/submission.js';
export { catalogue, configuration, healthOverview, metricsExposition } from './contracts/server.js';
/** Marks an option as secret: it is never shown. */
export { secret } from './contracts/outline.js';
export { abortAfter } from './concurrency.js';
export { writeFileAtomic } from './disk/atomic.js';
export { networkOf, reversedAddress } from './net/ip-address.js';
export { parseNetworks, type NetworkSet } from './net/networks.js';
/** Types for the functions that a plugin is made of. */
export type { Clock } from './clock.js';
export type { Command, CommandInput, OwnFlag, Terminal } from './cli/command.js';
export type { Delivery, DeliveryTarget, RecipientOutcome } from './pipeline/delivery-target.js';
export type { Directory, MailUser } from './contracts/directory.js';
export type { HealthReport } from './contracts/health.js';
export type { OwnerCall } from './contracts/server.js';
export type { Log } from './log/log.js';
export { parseAddress, type Address } from './mime/address.js';
export type { Hook, HookOptions, OutgoingAttempt, Phase, StageInput } from './pipeline/hook.js';
export type { FinishedAttempt, Outcome, WatchedEvent, WatchedEvents, Watcher } from './pipeline/events.js';
export type { Stage } from './pipeline/verdict.js';
export type { ReceivedMessage, Recipient, SmtpSession, Transaction } from './pipeline/transaction.js';
