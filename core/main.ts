import { randomBytes } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { builtIns } from '../plugins/index.js';
import { type App, createApp } from './app.js';
import { systemClock } from './clock.js';
import { loadConfiguration, type LoadedConfiguration, type Overrides } from './config/load.js';
import type { LayerFile } from './contracts/server.js';
import { othersMay, takeDataFolder } from './disk/data-folder.js';
import { openAccounts, type OpenedAccounts } from './http/accounts.js';
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

/** A server that has said that it is ready. */
export interface RunningServer {
  readonly configuration: LoadedConfiguration;
  readonly app: App;
  /** Lets sessions finish within the configured time, then closes everything. May be called twice. */
  stop(): Promise<void>;
}

/** Reads and checks the configuration for this place. */
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

/** Starts the server: configuration, data folder, log, accounts, plugins, listeners, in that order. */
export async function start(options: StartOptions, surroundings: CommandEnvironment): Promise<RunningServer> {
  const configuration = await configure(options, surroundings);
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
      log.log.warn(
        { data, mode: (mode & 0o7777).toString(8) },
        'other users may look into the data folder: chmod 700 it',
      );
    }
    const watchdog = await Watchdog.open({ data, settings: settings.watchdog, log: log.log, clock: systemClock });
    opened.push(() => watchdog.close());
    const ownerToken = randomBytes(24).toString('base64url');
    const accounts = await openAccounts({
      configured: settings.http.accounts,
      file: join(data, 'accounts.json'),
      adminPassword: surroundings.env['POSTERN_ADMIN_PASSWORD'],
      ownerToken,
      clock: systemClock,
      rememberSeconds: settings.http.limits.credentialSeconds,
    });
    const app = await createApp({
      configuration,
      load: (layers) => configure(options, surroundings, layers),
      accounts: accounts.accounts,
      log,
      clock: systemClock,
      watchdog,
      sockets: socketsFor(settings, surroundings),
    });
    opened.push(() => app.close());
    await app.listen();
    await accounts.keep();
    await lock.update({ http: urlOf(app), token: ownerToken });
    announce(app, { configuration, accounts, log, options, surroundings });
    return { configuration, app, stop: release };
  } catch (error) {
    await release();
    throw error;
  }
}

/** What a service manager handed over, each for somebody. Throws a start error. */
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
  readonly accounts: OpenedAccounts;
  readonly log: OpenedLog;
  readonly options: StartOptions;
  readonly surroundings: CommandEnvironment;
}

function announce(app: App, { configuration, accounts, log, options, surroundings }: ReadyMessage): void {
  const listeners = app.smtp.addresses();
  const http = urlOf(app);
  surroundings.print(`postern ready http=${http} smtp=${addressOf(listeners[0])}`);
  const { generatedPassword } = accounts;
  const commandFor = commandPrinter(options, surroundings);
  surroundings.print(
    welcome({
      http,
      listeners,
      configuration,
      generatedPassword,
      version,
      commandFor,
      failed: app.plugins.present.failed,
    }),
  );
  if (options.verbose === true) surroundings.print(`Plugins, in the order of their start:\n${app.plugins.describe()}`);
  log.log.info({ http, listeners, version, data: configuration.data }, 'ready');
}

const addressOf = (listener: { readonly host: string; readonly port: number } | undefined): string =>
  listener === undefined ? 'none' : `${listener.host}:${listener.port}`;

/** Commands as this person would type them, with the same folder and file. */
function commandPrinter({ config, data }: StartOptions, surroundings: CommandEnvironment): (words: string) => string {
  const program = programName(surroundings);
  const places = [
    ...(config === undefined ? [] : ['--config', config]),
    ...(data === undefined ? [] : ['--data', data]),
  ];
  return (words) => [program, words, ...places].join(' ');
}
