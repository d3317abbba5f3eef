import { rmSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type App, createApp } from '../../core/app.js';
import { loadConfiguration, type LoadedConfiguration } from '../../core/config/load.js';
import type { Resolver } from '../../core/dns/resolver.js';
import { HealthRegistry } from '../../core/host/health.js';
import { openAccounts } from '../../core/http/accounts.js';
import { type OpenedLog, openLog } from '../../core/log/log.js';
import type { Plugin } from '../../core/plugin.js';
import { availablePlugins } from '../../core/host/plugin-set.js';
import { isStartError, startError, type StartError } from '../../core/problem.js';
import { selfSigned, type KeyPair } from './certificate.js';
import type { FakeClock } from './fake-clock.js';
import type { HookRecord } from './hook-record.js';

/** `scrypt` of `accountPassword` at a toy's cost, so that tests need not wait for the real one. */
const accountHash = 'scrypt$1024$8$1$MDEyMzQ1Njc4OWFiY2RlZg$7AnzIswxwEinpwz-ntydndYfVHPvOACmX9Vvo8hO1qM';

export interface ServerInput {
  readonly plugins: readonly Plugin[];
  readonly options: Readonly<Record<string, unknown>>;
  readonly domains: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly clock: FakeClock;
  readonly resolver: Resolver;
  readonly record: HookRecord;
  readonly timeLimitMs: number | undefined;
  /** Absolute path of the data folder, which stays; one of its own that goes if undefined. */
  readonly data: string | undefined;
}

/** A whole server with its plugins, in a folder of its own, that listens nowhere. */
export class TestServer {
  readonly folder: string;
  readonly data: string;
  readonly app: App;
  readonly log: OpenedLog;
  readonly #input: ServerInput;

  private constructor(folder: string, data: string, app: App, log: OpenedLog, input: ServerInput) {
    this.folder = folder;
    this.data = data;
    this.app = app;
    this.log = log;
    this.#input = input;
  }

  /** Rejects with what `postern start` would say; then nothing is left. */
  static async start(input: ServerInput): Promise<TestServer> {
    const folder = await makeFolder();
    let log: OpenedLog | undefined;
    try {
      await writeSettings(folder, input, input.options);
      const configuration = await load(folder, input);
      const { settings, data } = configuration;
      await mkdir(join(data, 'uploads'), { recursive: true, mode: 0o700 });
      log = openLog({ ...settings.log, folder: join(data, 'logs'), clock: input.clock });
      return new TestServer(folder, data, await openApp(folder, configuration, log, input), log, input);
    } catch (error) {
      await log?.close();
      await remove(folder);
      throw isStartError(error) ? withoutReason(error) : error;
    }
  }

  /** Puts other options of some plugins into force, as a reload of the configuration does; the others keep theirs. */
  async reconfigure(options: Readonly<Record<string, unknown>>): Promise<void> {
    await writeSettings(this.folder, this.#input, { ...this.#input.options, ...options });
    await this.app.reloading.reload({ by: 'test' });
  }

  async close(): Promise<void> {
    await this.app.close();
    await this.log.close();
    await remove(this.folder);
  }
}

/** The plugins that are tested are those of a site. One that does not start is what the test wants to hear of. */
const ownCode = {
  entry: { from: 'test', mode: 'enforce', required: true, startSeconds: 30 },
  place: { entry: '', folder: undefined, kit: undefined },
  fingerprint: '',
} as const;

/** That the plugin is required is the kit's own doing. */
function withoutReason(error: StartError): StartError {
  return startError(
    error.message.replace(/(?<=\.) The server does not start without it: [^\n]*required\.$/, ''),
    error,
  );
}

/** Of all servers of this process. */
let pair: KeyPair | undefined;

/** Of servers that nobody has closed yet. */
const folders = new Set<string>();

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), `postern-testing-${process.pid}-`));
  if (folders.size === 0) process.once('exit', removeAll);
  folders.add(folder);
  return folder;
}

async function remove(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  folders.delete(folder);
  if (folders.size === 0) process.off('exit', removeAll);
}

/** A test that forgets to close its server leaves nothing behind either. */
function removeAll(): void {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
}

async function openApp(
  folder: string,
  configuration: LoadedConfiguration,
  log: OpenedLog,
  input: ServerInput,
): Promise<App> {
  const { clock, resolver, record, timeLimitMs } = input;
  const { accounts } = await openAccounts({
    configured: configuration.settings.http.accounts,
    file: join(configuration.data, 'accounts.json'),
    adminPassword: undefined,
    clock,
  });
  const overrides = {
    timers: clock,
    resolver,
    observe: record.observe,
    listenerHealth: new HealthRegistry({ clock }),
    ...(timeLimitMs !== undefined && { timeLimitMs }),
  };
  return createApp({ configuration, load: () => load(folder, input), accounts, log, clock, overrides });
}

function writeSettings(
  folder: string,
  { domains, plugins, data }: ServerInput,
  options: Readonly<Record<string, unknown>>,
): Promise<void> {
  const own = Object.fromEntries(
    plugins.filter(({ name }) => options[name] !== undefined).map(({ name }) => [name, options[name]]),
  );
  pair ??= selfSigned('mx.example.org');
  const { key, cert } = pair;
  const settings = {
    hostname: 'mx.example.org',
    domains,
    ...(data !== undefined && { data }),
    durability: 'file',
    shutdownSeconds: 1,
    log: { level: 'debug' },
    http: {
      accounts: ['read', 'operate', 'admin'].map((role) => ({ username: role, role, passwordHash: accountHash })),
    },
    smtp: {
      listeners: [
        { mode: 'mx', tls: 'starttls', key, cert },
        { mode: 'submission', tls: 'starttls', key, cert, allowPlaintextAuth: true },
        { mode: 'lmtp' },
      ],
      limits: { authDelaySeconds: [] },
    },
    plugins: own,
  };
  return writeFile(join(folder, 'postern.json5'), JSON.stringify(settings));
}

/** Reads the configuration as a start does. Its complaints name no place in a file that nobody has written. */
async function load(folder: string, { plugins, env }: ServerInput): Promise<LoadedConfiguration> {
  const supply = availablePlugins([], { modules: [{ ...ownCode, plugins }], unloaded: [] });
  try {
    return await loadConfiguration({ overrides: {}, cwd: folder, env, plugins: () => Promise.resolve(supply) });
  } catch (error) {
    if (!isStartError(error)) throw error;
    throw startError(error.message.replaceAll(/^.*postern\.json5(?::\d+:\d+)?: /gm, ''), error);
  }
}
