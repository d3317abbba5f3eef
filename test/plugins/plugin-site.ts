import { join } from 'node:path';
import { pino } from 'pino';
import { provide, type ProvidedService } from '../../core/contracts/service.js';
import { type Clock, systemTimers } from '../../core/clock.js';
import { FileSignInHistory } from '../../core/auth/sign-in-history.js';
import {
  lifecycle,
  catalogue,
  configuration,
  healthOverview,
  metricsExposition,
  reloading,
  type Configuration,
  type EffectiveValue,
  type Reloading,
} from '../../core/contracts/server.js';
import { serverLog } from '../../core/contracts/server-log.js';
import { signInHistory } from '../../core/contracts/sign-in-history.js';
import { stallWatch } from '../../core/contracts/stall-watch.js';
import { type OpenedLog, openLog } from '../../core/log/log.js';
import { HealthRegistry } from '../../core/host/health.js';
import { parseAddress } from '../../core/mime/address.js';
import { contextFactory } from '../../core/host/plugin-context.js';
import type { Plugin } from '../../core/plugin.js';
import { RunningPlugin } from '../../core/host/running-plugin.js';
import { Pipeline } from '../../core/pipeline/pipeline.js';
import type { SmtpSession, Transaction } from '../../core/pipeline/transaction.js';
import { noWatchdog } from '../../core/watchdog/watchdog.js';
import { atEnd, type Ending } from '../support/ending.js';
import { openShell, type OpenedShell } from '../core/http/opened-shell.js';

export interface PluginSite extends OpenedShell {
  readonly running: RunningPlugin;
  readonly pipeline: Pipeline;
  readonly health: HealthRegistry;
  readonly signIns: FileSignInHistory;
  /** What the plugin reads as the log of the server; nothing but the test writes to it. */
  readonly serverLog: OpenedLog;
  /** Aborted, the server is said to stop. */
  readonly stopping: AbortController;
  /** The model that a script gets; fails unless the status is the expected one. */
  json(path: string, status?: number): Promise<Record<string, unknown>>;
  /** The page; fails unless it is there. */
  page(path: string): Promise<string>;
}

export interface PluginSiteInput {
  readonly options?: object;
  readonly configuration: Configuration;
  readonly clock?: Clock;
  /** A configuration that never changes if absent. */
  readonly reloading?: Reloading;
  /** What other plugins would lend. */
  readonly lent?: readonly ProvidedService[] | ((shell: OpenedShell) => readonly ProvidedService[]);
}

const unchanging: Reloading = {
  reload: () => Promise.resolve({ status: 'unchanged', changed: [], restartRequired: [], differences: [], failed: [] }),
  last: () => null,
};

export const noon = Date.UTC(2026, 10, 21, 12);

/** One plugin with the real shell, pipeline, metrics and health around it. */
export async function openPluginSite(t: Ending, plugin: Plugin, input: PluginSiteInput): Promise<PluginSite> {
  const clock = input.clock ?? { now: () => noon, monotonic: () => 0 };
  const opened = await openShell();
  atEnd(t, () => opened.close());
  const log = pino({ level: 'silent' });
  const pipeline = new Pipeline({ log, clock });
  const health = new HealthRegistry({ clock });
  const { shell: http, metrics, data } = opened;
  const stopping = new AbortController();
  const signIns = await FileSignInHistory.open({ folder: join(data, 'sign-ins'), clock, log });
  atEnd(t, () => signIns.close());
  const logged = openLog({
    folder: join(data, 'logs'),
    level: 'trace',
    ringLines: 100,
    maxFileBytes: 2 ** 20,
    keepFiles: 10,
    clock,
  });
  atEnd(t, () => logged.close());
  const lent = [
    ...(typeof input.lent === 'function' ? input.lent(opened) : (input.lent ?? [])),
    provide(configuration, { ...input.configuration, data }),
    provide(reloading, input.reloading ?? unchanging),
    provide(healthOverview, health),
    provide(metricsExposition, metrics.exposition),
    provide(serverLog, logged.source),
    provide(signInHistory, signIns),
    provide(stallWatch, noWatchdog),
    provide(lifecycle, { stopping: stopping.signal, remainingMs: () => Infinity, started: Promise.resolve() }),
    provide(catalogue, {
      endpoints: () => http.describe(),
      hooks: () => pipeline.describe(),
      mayOpen: (account, path) => http.mayOpen(account, path),
    }),
  ];
  const services = Object.fromEntries(
    Object.entries({ ...plugin.uses, ...plugin.needs }).map(([key, token]) => [
      key,
      lent.find(({ token: one }) => one.id === token.id)?.value,
    ]),
  );
  const running = new RunningPlugin(plugin, log);
  await running.setup(
    contextFactory({ data, log, clock, timers: systemTimers, metrics, health, pipeline, http }),
    services,
    plugin.options.parse(input.options ?? {}),
  );
  running.activate();
  atEnd(t, () => running.stop());
  const expect = async (answer: Response, status: number): Promise<string> => {
    const text = await answer.text();
    if (answer.status !== status) throw new Error(`${answer.url}: ${answer.status} ${text}`);
    return text;
  };
  return {
    ...opened,
    running,
    pipeline,
    health,
    signIns,
    serverLog: logged,
    stopping,
    json: async (path, status = 200) =>
      JSON.parse(await expect(await opened.get(path, { headers: { accept: 'application/json' } }), status)) as Record<
        string,
        unknown
      >,
    page: async (path) => expect(await opened.get(path, { headers: { accept: 'text/html' } }), 200),
  };
}

export function configurationOf(
  values: readonly Partial<EffectiveValue>[],
  given: Partial<Configuration> = {},
): Configuration {
  const usual = {
    key: '',
    value: null,
    origin: 'default',
    where: null,
    default: null,
    description: null,
    secret: false,
  } as const;
  return {
    file: null,
    hostname: 'mail.example.org',
    data: '/nowhere',
    domains: ['example.org'],
    relayNetworks: [],
    effective: () => values.map((value) => ({ ...usual, ...value })),
    ...given,
  };
}

let sessions = 0;

export function sessionFrom(address: string): SmtpSession {
  sessions += 1;
  return {
    id: `session-${sessions}`,
    listener: { name: 'mx', mode: 'mx' },
    remote: { address, port: 40_000 },
    exempt: false,
    hello: { verb: 'EHLO', name: 'client.example' },
    tls: undefined,
    user: undefined,
    since: '2026-11-21T12:00:00.000Z',
    notes: new Map(),
  };
}

export function transactionIn(session: SmtpSession, ...recipients: readonly string[]): Transaction {
  return {
    id: `transaction-${session.id}`,
    session,
    reversePath: parseAddress('sender@example.net'),
    declaredSize: undefined,
    body: '8BITMIME',
    smtputf8: false,
    recipients: recipients.map((address) => ({
      address: parseAddress(address),
      hop: { target: 'mailbox', destination: address },
      discarded: false,
    })),
    notes: new Map(),
  };
}
