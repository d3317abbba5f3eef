import type { Counter, Gauge, Histogram } from 'prom-client';
import { z } from 'zod';
import type { Clock } from './clock.js';
import type { Command } from './cli/command.js';
import type { DeliveryTarget } from './contracts/delivery-target.js';
import type { DoctorCheck } from './contracts/doctor-check.js';
import type { HealthCheck } from './host/health.js';
import type { AnyEndpoint, Role } from './http/endpoint.js';
import { definitionKeys, kitVersion } from './host/declaration.js';
import type { Log } from './log/log.js';
import type { Services, ServiceValues } from './host/service.js';
import type { Hook, HookOptions, Stage, WatchedEvent, Watcher } from './pipeline/hook.js';
import type { Outcome } from './pipeline/outcome.js';

export { kitVersion };

/** Everything a plugin registers through its context is undone when the plugin stops. */
export interface PluginContext {
  readonly log: Log;
  readonly clock: Clock;
  readonly http: {
    mount(endpoints: readonly AnyEndpoint[]): void;
    /**
     * A link in the navigation of every page, for those who hold the role. Links of the site stand behind those of the server,
     * among themselves by `order`, then by title.
     */
    navigate(link: {
      readonly title: string;
      readonly href: string;
      readonly order: number;
      readonly role: Role;
    }): void;
  };
  readonly smtp: {
    on<S extends Stage>(stage: S, hook: Hook<S>): void;
    on<S extends Stage>(stage: S, options: HookOptions, hook: Hook<S>): void;
    watch<E extends WatchedEvent>(event: E, watcher: Watcher<E>): void;
    /**
     * For whoever owns queued mail: tells the watchers of `outcome` what became of a recipient, when that is durable. Asked only
     * while somebody watches. Never throws.
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
  /** Runs `task` every `seconds`, never two at once; a failure is logged. */
  readonly every: (seconds: number, task: () => void | Promise<void>) => void;
  /** A folder below the data folder that is the plugin's own: `data/<folder>`, made 0700. Rejects when it is another's. */
  readonly folder: (name: string) => Promise<string>;
  /** Runs when the plugin stops, the last registered first. */
  readonly onClose: (release: () => void | Promise<void>) => void;
}

/** What `setup` may return beside its services. */
export interface Reconfigurable<O> {
  /** Takes new options while running; throws to refuse, and then the old ones stay in force. */
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
  /** Its options; the defaults are in the schema, so that `{}` is always valid unless something is required. None if absent. */
  readonly options?: O;
  readonly needs?: Needs;
  /** Like `needs`, but may be missing: then the value is undefined. */
  readonly uses?: Uses;
  readonly provides?: Provides;
  /** Absolute folder of its views, for plugins from elsewhere; built-ins use `views/<name>`. */
  readonly views?: string;
  /** Absolute folder of files for its pages: `asset('<name>/style.css')` in a view is the URL of its `style.css`. */
  readonly assets?: string;
  /** Commands for the terminal: `postern NAME …`. */
  readonly commands?: readonly Command<z.output<O>>[];
  /** What `postern doctor` looks at for it. */
  readonly checks?: readonly DoctorCheck<z.output<O>>[];
  /** Throws what would make `setup` refuse these options, and does nothing else: `postern config check` asks it. */
  verify?(options: z.output<O>, place: { readonly folder: string }): void;
  /** Version of the plugin kit that it is written for, `major.minor`; that of the server if absent. */
  readonly kit?: string;
  /**
   * What a reload does when its code or its options have changed. `replace`: it is set up anew beside the old one, and the two
   * are swapped; it must bear that both are there for a moment. `restart`: only a restart of the server changes it. If absent,
   * a plugin of the site is replaced unless it has asked for a `folder`; one that comes with the server is not.
   */
  readonly reload?: 'replace' | 'restart';
  setup(
    context: PluginContext,
    given: { readonly options: z.output<O> } & ServiceValues<Needs> & Partial<ServiceValues<Uses>>,
  ): Provided<NoInfer<Provides>, z.output<O>> | Promise<Provided<NoInfer<Provides>, z.output<O>>>;
}

/** A command whose plugin's options have been forgotten. */
export type PluginCommand = Command<unknown>;

/** A check whose plugin's options have been forgotten. */
export type PluginCheck = DoctorCheck<unknown>;

/** A plugin as the host sees it: branded data, its types forgotten. */
export interface Plugin {
  readonly postern: 'plugin';
  /** A number where the declaration was made when there were no minor versions. */
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
  /** Runs in its place where another plugin provides what this one would. */
  readonly whenProvided?: Plugin;
  /** Keys of its declaration that mean nothing; absent where the declaration was not made by `definePlugin`. */
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
    // What is no function is not wrapped, so that it can be seen and refused.
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
/** For the schemas of options and endpoints: a site's plugin needs no zod of its own. */
export { z } from 'zod';
export { service } from './host/service.js';
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
export { submission } from './contracts/submission.js';
export { catalogue, configuration, healthOverview, metricsExposition } from './contracts/server.js';
/** For a key or a password among options: shown to nobody. */
export { secret } from './config/outline.js';
export { abortAfter } from './concurrency.js';
export { writeFileAtomic } from './disk/atomic.js';
export { networkOf, reversedAddress } from './net/ip-address.js';
export { parseNetworks, type NetworkSet } from './net/networks.js';
/** Types for the functions that a plugin is made of. */
export type { Clock } from './clock.js';
export type { Command, CommandInput, OwnerCall, Terminal } from './cli/command.js';
export type { Delivery, DeliveryTarget, RecipientOutcome } from './contracts/delivery-target.js';
export type { Directory, MailUser } from './contracts/directory.js';
export type { HealthReport } from './host/health.js';
export type { Log } from './log/log.js';
export { parseAddress, type Address } from './mime/address.js';
export type {
  Hook,
  HookOptions,
  Phase,
  Stage,
  StageInput,
  WatchedEvent,
  WatchedEvents,
  Watcher,
} from './pipeline/hook.js';
export type { Outcome } from './pipeline/outcome.js';
export type { ReceivedMessage, Recipient, SmtpSession, Transaction } from './pipeline/transaction.js';
