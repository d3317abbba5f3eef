import { dns as dnsService } from '../../core/contracts/dns.js';
import { healthOverview, metricsExposition } from '../../core/contracts/server.js';
import { definePlugin, isPlugin, type Plugin } from '../../core/plugin.js';
import type { Service } from '../../core/contracts/service.js';
import { DrivenSite, type Overviews } from './driven-site.js';
import type { DeliveredMail } from './delivered-mail.js';
import { FakeClock } from './fake-clock.js';
import { FakeDns, type FakeZone } from './fake-dns.js';
import { HookRecord } from './hook-record.js';
import { MemoryTarget } from './memory-target.js';
import { standIns } from './stand-ins.js';
import { TestServer } from './test-server.js';

export interface DriveOptions {
  /** Options of the plugin, as they would stand in the configuration. */
  readonly options?: unknown;
  /** Services that the plugin names in `needs` or `uses`, under the same keys. */
  readonly services?: Readonly<Record<string, unknown>>;
  /** Other plugins that run beside it, with their defaults or, as `[plugin, options]`, with options. */
  readonly beside?: readonly (Plugin | readonly [plugin: Plugin, options: unknown])[];
  /** Stands until it is turned. */
  readonly clock?: FakeClock;
  /** The DNS that plugins ask by the service `dns`; nothing exists in it if absent. */
  readonly dns?: FakeDns | FakeZone;
  /** Local domains; `example.org` if absent. */
  readonly domains?: readonly string[];
  /** The mailboxes that there are, as addresses; any address of the domains if absent. Each has the password `password`. */
  readonly users?: readonly string[];
  /** Variables for `{ env: 'NAME' }` in the options. */
  readonly env?: Readonly<Record<string, string>>;
  /** Absolute path of a data folder that is there when the server closes: for what has to survive a restart. */
  readonly data?: string;
  /** How long a hook without a limit of its own may take, in real milliseconds; 10 seconds if absent, as live. */
  readonly timeLimitMs?: number;
  /** The context of a test of `node:test`: the server closes when the test ends. */
  readonly test?: { after(release: () => Promise<void>): void };
}

/**
 * Starts a server with this plugin in it: the real one, without a network, in a folder of its own, with mailboxes in memory and a clock
 * that stands. Rejects with what `postern start` would say.
 *
 * ```js
 * test('a blocked sender is refused', async (t) => {
 *   const site = await drive(blocklist, { test: t, options: { senders: ['spam@example.com'] } });
 *   assert.equal((await site.mailFrom({ from: 'spam@example.com' })).verdict, 'reject');
 * });
 * ```
 */
export async function drive(plugin: Plugin, options: DriveOptions = {}): Promise<DrivenSite> {
  refuseMistakes(plugin, options);
  const { clock = new FakeClock(), domains = ['example.org'], beside = [], services = {}, env = {} } = options;
  const dns = options.dns instanceof FakeDns ? options.dns : new FakeDns(options.dns);
  dns.useTimers(clock);
  const record = new HookRecord();
  const delivered: DeliveredMail[] = [];
  const own = [[plugin, options.options] as const, ...beside.map(withOptions)];
  const plugins = own.map(([one]) => one);
  const given = servicesFor(plugins, services);
  const taken = new Set([...plugins.map(({ name }) => name), ...[...plugins, ...given].flatMap(idsOf)]);
  const others = standIns({ domains, users: options.users, taken, delivered, timers: clock });
  const observer = observing();
  const server = await TestServer.start({
    plugins: [...given, ...others, ...plugins, observer.plugin],
    options: Object.fromEntries(own.map(([{ name }, its]) => [name, its])),
    domains,
    env,
    clock,
    resolver: dns,
    record,
    timeLimitMs: options.timeLimitMs,
    data: options.data,
  });
  lendTargets(server, delivered);
  const strangers = new Set([...others, ...given, observer.plugin].map(({ name }) => name));
  const isStandIn = (name: string) => strangers.has(name);
  const overviews = observer.seen();
  const site = new DrivenSite({ server, plugin, clock, dns, record, delivered, isStandIn, overviews });
  options.test?.after(() => site.close());
  return site;
}

const knownOptions: readonly string[] = Object.keys({
  options: 0,
  services: 0,
  beside: 0,
  clock: 0,
  dns: 0,
  domains: 0,
  users: 0,
  env: 0,
  data: 0,
  timeLimitMs: 0,
  test: 0,
} satisfies Record<keyof DriveOptions, 0>);

/** Tests are often plain JavaScript: what the compiler would refuse is refused here. */
function refuseMistakes(plugin: unknown, options: DriveOptions): void {
  if (![plugin, ...(options.beside ?? []).map((one) => withOptions(one)[0])].every(isPlugin)) {
    throw new TypeError('drive: give what definePlugin returns.');
  }
  const stranger = Object.keys(options).find((key) => !knownOptions.includes(key));
  if (stranger !== undefined) {
    throw new TypeError(`drive: there is no option ${stranger}; options: ${knownOptions.join(', ')}.`);
  }
}

const withOptions = (one: NonNullable<DriveOptions['beside']>[number]): readonly [Plugin, unknown] =>
  Array.isArray(one) ? (one as readonly [Plugin, unknown]) : [one as Plugin, undefined];

const idsOf = ({ provides }: Plugin): readonly string[] => Object.values(provides).map(({ id }) => id);

/** A plugin that provides what the test brings for those that need it. */
function servicesFor(plugins: readonly Plugin[], services: Readonly<Record<string, unknown>>): readonly Plugin[] {
  if (Object.keys(services).length === 0) return [];
  const known = Object.assign({}, ...plugins.map(({ needs, uses }) => ({ ...uses, ...needs }))) as Record<
    string,
    Service<unknown>
  >;
  const stranger = Object.keys(services).find((key) => known[key] === undefined);
  if (stranger !== undefined) {
    const names = Object.keys(known).join(', ') || 'nothing';
    throw new TypeError(`drive: no plugin names ${stranger} in needs or uses; they name ${names}.`);
  }
  const provides = Object.fromEntries(Object.entries(known).filter(([key]) => key in services));
  if (Object.values(provides).some(({ id }) => id === dnsService.id)) {
    throw new TypeError("drive: the DNS is told its answers: dns: { 'example.org A': ['192.0.2.1'] }.");
  }
  return [definePlugin({ name: 'test-services', provides, setup: () => services })];
}

/** Looks, as any plugin may, at health and at metrics. */
function observing(): { readonly plugin: Plugin; readonly seen: () => Overviews } {
  let seen: Overviews | undefined;
  const plugin = definePlugin({
    name: 'test-observer',
    needs: { healthOverview, metricsExposition },
    setup(_context, { healthOverview, metricsExposition }) {
      seen = { components: () => healthOverview.components(), families: () => metricsExposition.collect() };
    },
  });
  return {
    plugin,
    seen: () => {
      if (seen === undefined) throw new Error('the server has not started');
      return seen;
    },
  };
}

/** Where no plugin delivers by itself; `queue`, `retry`, `bounce` and `hold` where the queue has none. */
function lendTargets({ app: { pipeline } }: TestServer, delivered: DeliveredMail[]): void {
  for (const name of ['mailbox', 'relay', 'hold', 'retry', 'bounce'] as const) {
    if (pipeline.target(name) === undefined) pipeline.deliverTo('test', name, new MemoryTarget(name, delivered));
  }
}
