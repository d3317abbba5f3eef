import { randomBytes } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { builtIns } from '../plugins/index.js';
import { type App, createApp } from './app.js';
import { systemClock } from './clock.js';
import { loadConfiguration, type LoadedConfiguration, type Overrides } from './config/load.js';
import type { LayerFile } from './contracts/server.js';
import { othersMay, takeDataFolder } from './host/data-folder.js';
import { openAccounts } from './http/accounts.js';
import { InheritedSockets } from './net/inherited-sockets.js';
import { version } from './host/installation.js';
import { type OpenedLog, openLog } from './log/log.js';
import { availablePlugins } from './host/plugin-set.js';
import { programName, type CommandEnvironment } from './cli/command.js';
import { loadSitePlugins } from './host/site-plugins.js';
import { Watchdog } from './watchdog/watchdog.js';
import { welcome } from './cli/welcome.js';

export { builtIns };

export interface StartOptions extends Overrides {
  readonly verbose?: boolean;
}

/** A server that is ready. */
export interface RunningServer {
  readonly configuration: LoadedConfiguration;
  readonly app: App;
  /** Lets sessions finish within the configured time, then closes everything. May be called twice. */
  stop(): Promise<void>;
}

/** Reads and checks the configuration. */
export function configure(
  overrides: Overrides,
  { cwd, env }: CommandEnvironment,
  layers?: readonly LayerFile[],
  loadPlugins = loadSitePlugins,
): Promise<LoadedConfiguration> {
  return loadConfiguration({
    overrides,
    ...(layers !== undefined && { layers }),
    cwd,
    env,
    plugins: async (entries, base) => availablePlugins(builtIns, await loadPlugins(entries, base)),
  });
}

/** Starts the server in this order: configuration, data folder, log, accounts, plugins, listeners. */
export async function start(options: StartOptions, environment: CommandEnvironment): Promise<RunningServer> {
  const configuration = await configure(options, environment);
  const { data, settings } = configuration;
  const opened: (() => Promise<void>)[] = [];
  const release = async () => {
    for (let close = opened.pop(); close !== undefined; close = opened.pop()) await close();
  };
  try {
    const lock = await takeDataFolder(data);
    opened.push(() => lock.release());
    const log = openLog({
      ...settings.log,
      folder: join(data, 'logs'),
      clock: systemClock,
      verbose: options.verbose === true,
    });
    opened.push(() => log.close());
    const { mode } = await stat(data);
    if ((mode & othersMay) !== 0) {
      log.log.warn({ data, mode: (mode & 0o7777).toString(8) }, 'other users can read the data folder: chmod 700 it');
    }
    const watchdog = await Watchdog.open({ data, settings: settings.watchdog, log: log.log, clock: systemClock });
    opened.push(() => watchdog.close());
    const ownerToken = randomBytes(24).toString('base64url');
    const accounts = await openAccounts({
      configured: settings.http.accounts,
      file: join(data, 'accounts.json'),
      adminPassword: environment.env['POSTERN_ADMIN_PASSWORD'],
      ownerToken,
      clock: systemClock,
      rememberSeconds: settings.http.limits.credentialSeconds,
    });
    const app = await createApp({
      configuration,
      load: (layers) => configure(options, environment, layers),
      accounts: accounts.accounts,
      log,
      clock: systemClock,
      watchdog,
      sockets: socketsFor(settings, environment),
    });
    opened.push(() => app.close());
    await app.listen();
    const isKept = await accounts.keep();
    await lock.update({ http: urlOf(app), token: ownerToken });
    const generatedPassword = isKept ? accounts.generatedPassword : undefined;
    announce(app, { configuration, generatedPassword, log, options, environment });
    return { configuration, app, stop: release };
  } catch (error) {
    await release();
    throw error;
  }
}

/**
 * Sockets inherited from a service manager.
 *
 * @throws start error for one that no listener uses
 */
function socketsFor({ http, smtp }: LoadedConfiguration['settings'], { env }: CommandEnvironment): InheritedSockets {
  const sockets = new InheritedSockets(env, process.pid);
  sockets.refuseUnclaimed([http, ...smtp.listeners]);
  return sockets;
}

const urlOf = (app: App): string => {
  const { host, port } = app.http.address();
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
};

interface ReadyMessage {
  readonly configuration: LoadedConfiguration;
  /** To be shown. */
  readonly generatedPassword: string | undefined;
  readonly log: OpenedLog;
  readonly options: StartOptions;
  readonly environment: CommandEnvironment;
}

function announce(app: App, { configuration, generatedPassword, log, options, environment }: ReadyMessage): void {
  const listeners = app.smtp.addresses();
  const http = urlOf(app);
  environment.print(`postern ready http=${http} smtp=${addressOf(listeners[0])}`);
  const commandFor = commandPrinter(options, environment);
  environment.print(
    welcome({
      http,
      listeners,
      configuration,
      generatedPassword,
      version,
      commandFor,
      failed: app.plugins.current.failed,
    }),
  );
  if (options.verbose === true) environment.print(`Plugins, in the order of their start:\n${app.plugins.describe()}`);
  log.log.info({ http, listeners, version, data: configuration.data }, 'ready');
}

const addressOf = (listener: { readonly host: string; readonly port: number } | undefined): string =>
  listener === undefined ? 'none' : `${listener.host}:${listener.port}`;

/** Formats commands as the operator would type them, with the same folder and file. */
function commandPrinter({ config, data }: StartOptions, environment: CommandEnvironment): (words: string) => string {
  const program = programName(environment);
  const places = [
    ...(config === undefined ? [] : ['--config', config]),
    ...(data === undefined ? [] : ['--data', data]),
  ];
  return (words) => [program, words, ...places].join(' ');
}
