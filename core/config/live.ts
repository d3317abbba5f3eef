import { isDeepStrictEqual } from 'node:util';
import type {
  Configuration,
  ConfigurationFile,
  Difference,
  EffectiveValue,
  ReviewedLayer,
  WatchedCode,
} from '../contracts/server.js';
import { withTimeout } from '../concurrency.js';
import { siteEntry, watchedCode } from '../host/site-files.js';
import type { HttpSettings } from '../http/options.js';
import type { Log } from '../log/log.js';
import { type LoadedConfiguration, reviewLayer } from './load.js';
import { isStartError, problem } from '../problem.js';
import { maskedValue } from './masking.js';
import type { KeyPath } from './positions.js';

type Watcher = () => void | Promise<void>;

const watcherTimeoutMs = 60_000;

/** The configuration of a running server: the current values, and those at the start. */
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

  /** As last loaded; some of it may wait for a restart. */
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

  get auditBytes(): number {
    const { auditFileBytes, keepAuditFiles } = this.started.settings.log;
    return auditFileBytes * keepAuditFiles;
  }

  get maxSessions(): number {
    return this.#current.settings.smtp.limits.clients;
  }

  files(): readonly ConfigurationFile[] {
    return this.#current.files();
  }

  review(name: string, text: string): ReviewedLayer {
    try {
      return reviewLayer(name, text, this.#current.plugins);
    } catch (cause) {
      if (isStartError(cause)) throw problem('invalid', { detail: cause.message, cause });
      throw cause;
    }
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
    return watchedCode(settings.sitePlugins.map(siteEntry), folder);
  }

  watch(watcher: Watcher): () => void {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  /** The plugins are created after the configuration; then this tells which of them wait for a restart. */
  setWaitingPlugins(waiting: (next: LoadedConfiguration) => { has(name: string): boolean }): void {
    this.#waiting = waiting;
  }

  use(next: LoadedConfiguration): void {
    this.#current = next;
  }

  /** Calls all watchers in turn; stops at the first that throws or exceeds its time limit. */
  async notify(): Promise<void> {
    for (const watcher of this.#watchers) await runWatcher(watcher);
  }

  /** Calls all watchers after a rollback; logs their errors. */
  async notifyRollback(): Promise<void> {
    for (const watcher of this.#watchers) {
      try {
        await runWatcher(watcher);
      } catch (error) {
        this.#log.error({ err: error }, 'a watcher of the configuration could not be rolled back');
      }
    }
  }

  /** What `next` would change: live keys compared with the current values, the others with those at the start. */
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

/** Time-limited, since it blocks all other reloads. */
async function runWatcher(watcher: Watcher): Promise<void> {
  const told = Promise.resolve(watcher());
  await withTimeout(
    watcherTimeoutMs,
    told,
    `a watcher of the configuration has not finished after ${watcherTimeoutMs / 1000} s`,
  );
}

const byKey = (configuration: LoadedConfiguration): ReadonlyMap<KeyPath, EffectiveValue> =>
  new Map(configuration.effective().map((entry) => [entry.key, maskedValue(entry)]));

/** Keys that are read only at the start, with everything below them. */
const restartKeys: readonly KeyPath[] = [
  'hostname',
  'data',
  'durability',
  'log',
  'http.host',
  'http.port',
  'http.socket',
  'http.https',
  'http.limits.headerBytes',
];

/**
 * Whether a change of the key waits for a restart.
 *
 * @param plugins those that change only at a restart
 */
function waitsForRestart(key: KeyPath, plugins: { has(name: string): boolean }): boolean {
  const [first, second = ''] = key.split('.');
  if (first === 'plugins') return plugins.has(second);
  return restartKeys.some((fixed) => key === fixed || key.startsWith(`${fixed}.`));
}

/** The new settings, with the old values of keys that change only at a restart. */
export function effectiveHttpSettings(started: LoadedConfiguration, next: LoadedConfiguration): HttpSettings {
  const { host, port, socket, https, limits } = started.settings.http;
  return {
    ...next.settings.http,
    host,
    port,
    socket,
    https,
    limits: { ...next.settings.http.limits, headerBytes: limits.headerBytes },
  };
}

/** Keys whose values differ, in the order of `now`. */
function differingKeys(old: ReadonlyMap<KeyPath, unknown>, now: ReadonlyMap<KeyPath, unknown>): readonly KeyPath[] {
  return [...new Set([...now.keys(), ...old.keys()])].filter((key) => !isDeepStrictEqual(old.get(key), now.get(key)));
}
