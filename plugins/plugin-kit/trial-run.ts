import { spawnSync } from 'node:child_process';
import { mkdirSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { type App, createApp } from '../../core/app.js';
import { systemClock } from '../../core/clock.js';
import { invalidPlacesOf } from '../../core/config/complaint.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import type { ExplainQuestion } from '../../core/contracts/explaining.js';
import { declarationComplaints, definitionKeys } from '../../core/host/declaration.js';
import type { SiteModule } from '../../core/host/plugin-set.js';
import { entryFileOf, siteEntry } from '../../core/host/site-files.js';
import { loadSitePlugin, loadSitePlugins } from '../../core/host/site-plugins.js';
import { locationBelow, rootCauseText } from '../../core/host/uncaught.js';
import { type Accounts, openAccounts, ownerUsername } from '../../core/http/accounts.js';
import { openLog } from '../../core/log/log.js';
import { configure } from '../../core/main.js';
import { PipelineExplaining } from '../../core/pipeline/explain.js';
import type { Plugin } from '../../core/plugin.js';
import { isStartError, startError } from '../../core/problem.js';
import { type HttpAnswer, HttpCaller } from '../../test/kit/http-caller.js';
import { builtInCommands } from '../commands.js';
import {
  outlineOfPlugin,
  type PluginOutline,
  type TrialFinding,
  type TrialReport,
  type TrialRequest,
  type TrialStep,
} from './trial.js';

const ownCommands = new Set(builtInCommands.flatMap(({ words }) => words.split(' ').slice(0, 1)));

/** Only the trial itself signs in, and nothing outlives it. */
const ownerToken = 'trial';

/** Does what a start does except listening, and requests the pages. */
export class Trial {
  readonly #request: TrialRequest;
  readonly #tell: (step: TrialStep) => void;
  readonly #findings: TrialFinding[] = [];
  readonly #tried = new Set<string>();
  readonly #log: string[] = [];
  #step: TrialStep = 'load';
  #plugins: readonly PluginOutline[] = [];
  #pipeline: unknown;

  constructor(request: TrialRequest, tell: (step: TrialStep) => void) {
    this.#request = request;
    this.#tell = tell;
  }

  /** Never rejects. */
  async run(): Promise<TrialReport> {
    try {
      await this.#run();
    } catch (error) {
      this.#fault(error);
    }
    return this.#report();
  }

  /** The report after an uncaught error. */
  ended(error: unknown): TrialReport {
    this.#fault(error, 'Nobody catches this error: ');
    return this.#report();
  }

  /** A connection attempt. */
  tried(what: string): void {
    this.#tried.add(what);
  }

  async #run(): Promise<void> {
    const { path, cwd } = this.#request;
    const module = path === null ? undefined : await loadSitePlugin(siteEntry(path), cwd);
    const own = module?.plugins ?? [];
    for (const plugin of own)
      for (const message of declarationComplaints(plugin, ownCommands)) this.#error(`${plugin.name}, ${message}`);
    if (this.#findings.length > 0) return;
    for (const { name, unknownKeys = [] } of own) {
      for (const key of unknownKeys)
        this.#warning(`${name}, ${key}: no such key is known; keys: ${Object.keys(definitionKeys).join(', ')}.`);
    }
    this.#begin('configuration');
    const configuration = await this.#configure(module);
    for (const { why } of configuration.unloaded) this.#warning(why);
    this.#begin('setup');
    const app = await this.#start(configuration);
    for (const { name, why, cause } of app.plugins.current.failed.filter(({ where }) => where === 'setup')) {
      if (own.some((plugin) => plugin.name === name)) this.#fault(startError(why, cause));
      else this.#warning(why);
    }
    for (const { plugin = '', msg = '' } of this.#log.map(faultOf)) {
      if (msg.startsWith('a plugin uses a deprecated form') && own.some(({ name }) => name === plugin))
        this.#warning(`${plugin}: ${msg}`);
    }
    this.#plugins = own.map((plugin) => outlineOfPlugin(plugin, app));
    if (path === null) this.#pipeline = await pipelineOf(app);
    else await this.#lookAt(own, configuration, app);
    this.#begin('stop');
    await app.close();
  }

  /** The configuration with the plugin added; a configured plugin is used as it is. */
  #configure(own: SiteModule | undefined): Promise<LoadedConfiguration> {
    const { options, cwd, env } = this.#request;
    return configure(options, { cwd, env, print: () => undefined }, undefined, async (entries, folder) => {
      if (own === undefined) return loadSitePlugins(entries, folder);
      const named = entries.find(({ from }) => entryFileOf(from, folder) === own.place.entry);
      const { modules, unloaded } = await loadSitePlugins(
        entries.filter((entry) => entry !== named),
        folder,
      );
      return { modules: [...modules, { ...own, entry: named ?? own.entry }], unloaded };
    });
  }

  async #start(configuration: LoadedConfiguration): Promise<App> {
    const { scratch } = this.#request;
    mkdirSync(join(scratch, 'uploads'));
    const log = openLog({ ...configuration.settings.log, folder: join(scratch, 'logs'), clock: systemClock });
    log.ring.subscribe((line) => this.#log.push(line));
    return createApp({
      configuration: { ...configuration, data: scratch },
      load: () => Promise.reject(new Error('a trial is not reloaded')),
      accounts: await trialAccounts(scratch),
      log,
      clock: systemClock,
    });
  }

  async #lookAt(own: readonly Plugin[], configuration: LoadedConfiguration, app: App): Promise<void> {
    const names = new Set(own.map(({ name }) => name));
    this.#begin('hooks');
    await this.#askHooks(names, configuration, app);
    this.#begin('pages');
    const known = new Set(['core', ...configuration.plugins.map(({ name }) => name)]);
    for (const hook of app.pipeline.describe().filter(({ plugin }) => names.has(plugin))) {
      for (const other of [...hook.before, ...hook.after].filter((name) => !known.has(name))) {
        this.#warning(`The hook of ${hook.stage} wants to be before or after ${other}: no plugin of that name runs.`);
      }
    }
    const call = caller(app);
    await this.#call(call, 'GET /openapi.json', 'application/json');
    for (const { plugin, method, path, formats } of app.http.describe()) {
      if (!names.has(plugin) || method !== 'GET' || path.includes('{')) continue;
      if (formats.includes('json')) await this.#call(call, `GET ${path}`, 'application/json');
      if (formats.includes('html')) await this.#call(call, `GET ${path}`, 'text/html');
    }
  }

  /** Runs the hooks up to the recipient for a fictitious message. Any verdict is fine; anything else is reported. */
  async #askHooks(names: ReadonlySet<string>, { domains }: LoadedConfiguration, app: App): Promise<void> {
    const [before, tried] = [this.#log.length, this.#tried.size];
    const explaining = new PipelineExplaining({
      pipeline: app.pipeline,
      clock: systemClock,
      listenerName: (mode) => mode,
    });
    await explaining.explain(sampleMail(domains[0] ?? 'localhost'));
    const faults = this.#log.slice(before).map(faultOf);
    for (const { plugin = '', stage, why, err } of faults.filter(({ msg }) => msg === 'a hook failed')) {
      if (!names.has(plugin)) continue;
      const message = `The hook of ${stage ?? ''} fails: ${why ?? ''}${err?.message === undefined ? '' : `: ${err.message}`}`;
      const place = locationBelow(this.#folder(), err?.stack ?? '');
      this.#find(this.#tried.size > tried ? 'warning' : 'error', message, place);
    }
  }

  /** A missing page is fine; only an error is reported. */
  async #call(call: ReturnType<typeof caller>, what: string, accept: string): Promise<void> {
    const [before, tried] = [this.#log.length, this.#tried.size];
    const { status } = await call(what.slice('GET '.length), accept);
    if (status !== 500) return;
    const { err = {} } =
      this.#log
        .slice(before)
        .map(faultOf)
        .findLast(({ err }) => err !== undefined) ?? {};
    const place = this.#request.path === null ? undefined : locationBelow(this.#folder(), err.stack ?? '');
    const message = `${what} as ${accept} fails: ${err.message ?? 'the log says why'}`;
    // Expected without a network.
    this.#find(this.#tried.size > tried ? 'warning' : 'error', message, place);
  }

  #begin(step: TrialStep): void {
    this.#step = step;
    this.#tell(step);
  }

  #fault(error: unknown, before = ''): void {
    const place = this.#request.path === null ? undefined : this.#placeOf(error);
    if (isStartError(error) && this.#step === 'configuration') {
      for (const { message } of invalidPlacesOf(error)) this.#find('error', message, undefined);
    } else if (isStartError(error) && place === undefined) this.#find('error', error.message, undefined);
    else this.#find('error', `${before}${rootCauseText(error)}`, place);
  }

  #placeOf(error: unknown): string | undefined {
    const { path, cwd } = this.#request;
    const folder = this.#folder();
    const place = locationBelow(folder, error);
    if (place !== undefined || path === null || !(error instanceof Error && error.cause instanceof SyntaxError))
      return place;
    const entry = entryFileOf(path, cwd);
    return entry === undefined ? undefined : syntaxErrorPlace(entry, folder);
  }

  /** Of the plugin. */
  #folder(): string {
    const { path, cwd } = this.#request;
    const place = resolve(cwd, path ?? '');
    const isFolder = statSync(place, { throwIfNoEntry: false })?.isDirectory() === true;
    if (isFolder) return place;
    const entry = entryFileOf(path ?? '', cwd);
    return entry === undefined ? cwd : dirname(entry);
  }

  #error(message: string): void {
    this.#find('error', message, undefined);
  }

  #warning(message: string): void {
    this.#find('warning', message, undefined);
  }

  #find(severity: TrialFinding['severity'], message: string, place: string | undefined): void {
    this.#findings.push({ severity, step: this.#step, place: place ?? null, message });
  }

  #report(): TrialReport {
    const tried = [...this.#tried].map((what): TrialFinding => ({
      severity: 'warning',
      step: this.#step,
      place: null,
      message: `It wanted to ${what}, and got no answer: there is no network in a check.`,
    }));
    const pipeline = this.#pipeline === undefined ? {} : { pipeline: this.#pipeline };
    return { plugins: this.#plugins, findings: [...this.#findings, ...tried], ...pipeline };
  }
}

async function trialAccounts(folder: string): Promise<Accounts> {
  const { accounts } = await openAccounts({
    // Not a real hash: the trial signs in as the owner without one.
    configured: [
      { username: 'nobody', role: 'read', passwordHash: `scrypt$1024$8$1$${'A'.repeat(22)}$${'A'.repeat(43)}` },
    ],
    file: join(folder, 'accounts.json'),
    adminPassword: undefined,
    ownerToken,
    clock: systemClock,
  });
  return accounts;
}

async function pipelineOf(app: App): Promise<unknown> {
  const { status, body } = await caller(app)('/pipeline', 'application/json');
  if (status === 200) return body;
  throw startError('The plugin pipeline, which tells of the others, is switched off in the configuration.');
}

function caller(app: App): (path: string, accept: string) => Promise<HttpAnswer> {
  const http = new HttpCaller(app.http.callback());
  const authorization = `Basic ${Buffer.from(`${ownerUsername}:${ownerToken}`).toString('base64')}`;
  return (path, accept) => http.call('GET', path, { accept, headers: { authorization } });
}

const sampleMail = (domain: string): ExplainQuestion => ({
  ip: '192.0.2.1',
  ehlo: 'client.example',
  mode: 'mx',
  authenticated: null,
  tls: false,
  mail: 'anna@example.com',
  rcpt: [`postmaster@${domain}`],
});

interface LoggedFault {
  readonly msg?: string;
  readonly plugin?: string;
  /** Of a hook. */
  readonly stage?: string;
  readonly why?: string;
  readonly err?: { readonly message?: string; readonly stack?: string };
}

const faultOf = (line: string): LoggedFault => JSON.parse(line) as LoggedFault;

/**
 * Position of a syntax error, as `index.js:12`. The error of `import` does not include it, but the output of a process
 * that fails with it does; none of the code has run by then.
 */
function syntaxErrorPlace(entry: string, folder: string): string | undefined {
  const kit = new URL('./kit-import.js', import.meta.url).href;
  const { stderr } = spawnSync(process.execPath, ['--import', kit, entry], { encoding: 'utf8', timeout: 10_000 });
  return locationBelow(folder, stderr);
}
