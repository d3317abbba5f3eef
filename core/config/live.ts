import type { Configuration, ConfigurationFile, Difference, EffectiveValue, WatchedCode } from '../contracts/server.js';
import type { Log } from '../log/log.js';
import { codeOf } from '../host/site-code.js';
import { siteEntry } from '../host/site-entry.js';
import { within } from '../host/time-limit.js';
import type { LoadedConfiguration } from './load.js';
import { masked } from './masked.js';
import type { KeyPath } from './positions.js';
import { differingKeys, waitsForRestart } from './restart.js';

type Watcher = () => void | Promise<void>;

const mostWatchingMs = 60_000;

/** The configuration of a running server: the values in force, beside those that it started with. */
export class LiveConfiguration implements Configuration {
  readonly started: LoadedConfiguration;
  readonly #log: Log;
  readonly #watchers = new Set<Watcher>();
  #current: LoadedConfiguration;
  #waiting: (next: LoadedConfiguration) => { has(name: string): boolean } = () => new Set();

  constructor(started: LoadedConfiguration, log: Log) {
    this.started = started;
    this.#current = started;
    this.#log = log;
  }

  /** What the files said when they were last taken; some of it may wait for a restart. */
  get current(): LoadedConfiguration {
    return this.#current;
  }

  get file(): string | null {
    return this.started.file;
  }

  get hostname(): string {
    return this.started.hostname;
  }

  get data(): string {
    return this.started.data;
  }

  get domains(): readonly string[] {
    return this.#current.domains;
  }

  get relayNetworks(): readonly string[] {
    return this.#current.relayNetworks;
  }

  get nameServers(): readonly string[] {
    return this.#current.settings.dns.servers;
  }

  get messageBytes(): number {
    return this.#current.settings.smtp.limits.messageBytes;
  }

  get mostSessions(): number {
    return this.#current.settings.smtp.limits.clients;
  }

  files(): readonly ConfigurationFile[] {
    return this.#current.files();
  }

  effective(): readonly EffectiveValue[] {
    const changed = new Set(differingKeys(this.started.leaves(), this.#current.leaves()));
    const then = byKey(this.started);
    const now = byKey(this.#current);
    const waiting = this.#waiting(this.#current);
    return [...new Set([...now.keys(), ...then.keys()])].flatMap((key) => {
      const [old, entry] = [then.get(key), now.get(key)];
      if (!changed.has(key)) return entry ?? [];
      const pending = waitsForRestart(key, waiting);
      if (pending && old !== undefined) return { ...old, pending: entry?.value ?? null };
      if (pending && entry !== undefined)
        return { ...entry, value: null, origin: 'default', where: null, pending: entry.value };
      return entry === undefined ? [] : { ...entry, atStart: old?.value ?? null };
    });
  }

  code(): Promise<WatchedCode> {
    const { settings, folder } = this.#current;
    return codeOf(settings.sitePlugins.map(siteEntry), folder);
  }

  watch(watcher: Watcher): () => void {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  /** The plugins are started behind the configuration; from then on it can tell of whom a restart is needed. */
  askPlugins(waiting: (next: LoadedConfiguration) => { has(name: string): boolean }): void {
    this.#waiting = waiting;
  }

  use(next: LoadedConfiguration): void {
    this.#current = next;
  }

  /** Tells all watchers; the first that throws, or does not end, ends it. */
  async tell(): Promise<void> {
    for (const watcher of this.#watchers) await ask(watcher);
  }

  /** Tells all watchers that the old values are back; what they throw is logged. */
  async tellBack(): Promise<void> {
    for (const watcher of this.#watchers) {
      try {
        await ask(watcher);
      } catch (error) {
        this.#log.error({ err: error }, 'a watcher of the configuration could not go back to the old values');
      }
    }
  }

  /** What `next` would change: live keys against what is in force, the others against the start. */
  differences(next: LoadedConfiguration): readonly Difference[] {
    const leaves = next.leaves();
    const plugins = this.#waiting(next);
    const live = differingKeys(this.#current.leaves(), leaves).filter((key) => !waitsForRestart(key, plugins));
    const waiting = differingKeys(this.started.leaves(), leaves).filter((key) => waitsForRestart(key, plugins));
    const after = byKey(next);
    const describe = (keys: readonly KeyPath[], from: LoadedConfiguration, restart: boolean): readonly Difference[] => {
      const before = byKey(from);
      return keys.map((key) => ({
        key,
        before: before.get(key)?.value ?? null,
        after: after.get(key)?.value ?? null,
        restart,
      }));
    };
    return [...describe(live, this.#current, false), ...describe(waiting, this.started, true)];
  }
}

/** Nobody else is reloaded as long as one takes. */
async function ask(watcher: Watcher): Promise<void> {
  const told = Promise.resolve(watcher());
  await within(mostWatchingMs, told, `a watcher of the configuration has not ended after ${mostWatchingMs / 1000} s`);
}

const byKey = (configuration: LoadedConfiguration): ReadonlyMap<KeyPath, EffectiveValue> =>
  new Map(configuration.effective().map((entry) => [entry.key, masked(entry)]));
