import { dirname } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import { abortAfter } from '../../../core/concurrency.js';
import { LayerFolder, sha256Of, type StoredLayer } from '../../../core/config/layer-folder.js';
import type {
  ConfigurationSource,
  SkippedFile,
  SourceResult,
  SourceServer,
} from '../../../core/contracts/configuration-source.js';
import type { Configuration, Difference, Reloading, ReloadOutcome } from '../../../core/contracts/server.js';
import type { HealthReport } from '../../../core/contracts/health.js';
import type { Log } from '../../../core/log/log.js';
import { redactText } from '../../../core/log/redact.js';
import { isProblem, problem } from '../../../core/problem.js';
import { layersFor, Offer, type PulledFile, type PulledLayers, pullLayers } from './pulled-layers.js';
import type { SourceKinds } from './source-kinds.js';
import type { SyncSettings } from './sync-options.js';

export interface SyncInput {
  readonly configuration: Configuration;
  readonly reloading: Reloading;
  readonly kinds: SourceKinds;
  readonly log: Log;
  readonly clock: Clock;
  /** Aborted when the server stops. */
  readonly stopping: AbortSignal;
  /** Result of each check of the source. */
  readonly count: (result: 'applied' | 'unchanged' | 'waiting' | 'stale' | 'error') => void;
}

interface PullRequest {
  readonly by: string;
  readonly dryRun?: boolean;
  /** Automatically, at its interval. */
  readonly unasked?: boolean;
}

export interface SyncOutcome {
  readonly status: 'applied' | 'unchanged' | 'dryRun';
  readonly source: string;
  readonly files: readonly AppliedFile[];
  readonly skipped: readonly SkippedFile[];
  readonly changed: readonly string[];
  readonly restartRequired: readonly string[];
  readonly differences: readonly Difference[];
  readonly failed: ReloadOutcome['failed'];
}

/** Error of the last check. */
interface Trouble {
  readonly state: 'stale' | 'error';
  readonly error: string;
}

const lookSoonMs = 300;

/** Pulls configuration files from a source and applies them; after an error nothing has changed. */
export class Sync {
  readonly #input: SyncInput;
  readonly #folder: LayerFolder;
  readonly #offer: Offer;
  #settings: SyncSettings | undefined;
  /** Opened once per settings: a web source caches what it has read. */
  #opened: { readonly settings: SyncSettings; readonly source: ConfigurationSource } | undefined;
  #unwatch: (() => void) | undefined;
  /** Aborted when the source is replaced. */
  #left = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #pulling = false;
  /** The source has said that there is something new since the last look began. */
  #rung = false;
  #lastAttempt: string | null = null;
  #lastSuccess: string | null = null;
  #seen: readonly PulledFile[] | undefined;
  #skipped: readonly SkippedFile[] = [];
  #trouble: Trouble | undefined;

  constructor(input: SyncInput) {
    this.#input = input;
    this.#folder = new LayerFolder(input.configuration.data);
    this.#offer = new Offer(input.clock);
    input.stopping.addEventListener('abort', () => this.stop(), { once: true });
  }

  /** Applies other settings, or undefined for none; checks the source soon. */
  use(settings: SyncSettings | undefined): void {
    this.stop();
    this.#left = new AbortController();
    this.#settings = settings;
    [this.#lastAttempt, this.#lastSuccess, this.#seen, this.#skipped] = [null, null, undefined, []];
    this.#trouble = undefined;
    this.#offer.forget();
    if (settings !== undefined) this.#schedule(lookSoonMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#unwatch?.();
    this.#unwatch = undefined;
    this.#left.abort();
  }

  /**
   * Checks the source and applies what is new. @throws Problem `conflict` without a source or while another check runs,
   * `unavailable` when the source cannot be reached, `invalid` when its files are refused: then nothing has changed
   */
  async pull(request: PullRequest): Promise<SyncOutcome> {
    const settings = this.#settings;
    if (settings === undefined) throw problem('conflict', 'There is no source: set plugins.config.sync.');
    if (this.#pulling) throw problem('conflict', 'Another sync runs at this moment.');
    this.#pulling = true;
    this.#rung = false;
    this.#lastAttempt = this.#now();
    try {
      const outcome = await this.#lookAndBring(settings, request);
      // The applied files may configure another source, whose state is unknown.
      if (this.#settings !== settings) return outcome;
      this.#lastSuccess = this.#now();
      this.#trouble = undefined;
      const waits = outcome.status === 'dryRun' && this.#waiting();
      this.#input.count(waits ? 'waiting' : outcome.status === 'applied' ? 'applied' : 'unchanged');
      return outcome;
    } catch (error) {
      if (this.#settings === settings) this.#failed(error);
      throw error;
    } finally {
      this.#pulling = false;
      if (this.#rung) this.#schedule(lookSoonMs);
    }
  }

  summary(): SyncSummary {
    return {
      state: this.#state(),
      source: this.#settings === undefined ? null : this.#shown(this.#settings),
      lastAttempt: this.#lastAttempt,
      lastSuccess: this.#lastSuccess,
      error: this.#trouble?.error ?? null,
    };
  }

  async status(): Promise<SyncStatus> {
    const settings = this.#settings;
    if (settings === undefined) return syncIsOff;
    const applied = this.#folder.applied();
    return {
      ...this.summary(),
      layers: this.#layers(settings),
      apply: settings.apply,
      intervalSeconds: settings.intervalSeconds,
      appliedAt: applied?.at ?? null,
      applied: (applied?.files ?? []).map(({ name, layer, sha256 }) => ({ file: name, layer, sha256 })),
      skipped: [...this.#offer.refused(this.#seen ?? []), ...this.#skipped],
      drift: await this.#drift(),
      servers: await this.#servers(settings),
    };
  }

  /** None while the source is away: the error says so. */
  async #servers(settings: SyncSettings): Promise<readonly SourceServer[]> {
    try {
      return (await this.#open(settings).servers?.()) ?? [];
    } catch {
      return [];
    }
  }

  health(): HealthReport {
    const state = this.#state();
    if (state === 'off' || state === 'ok' || this.#lastAttempt === null) return { status: 'up' };
    const why = this.#trouble?.error ?? 'What the source has, what is on disk and what is in force differ.';
    return { status: 'degraded', why: `Sync is ${state}: ${why}` };
  }

  async #lookAndBring(settings: SyncSettings, request: PullRequest): Promise<SyncOutcome> {
    const source = this.#open(settings);
    const told = async (result: SourceResult): Promise<void> => {
      if (!onlyLooks(settings, request)) await source.done?.(result);
    };
    try {
      const outcome = await this.#bring(await this.#look(settings, request), settings, request);
      await told({ status: outcome.status === 'applied' ? 'applied' : 'unchanged' });
      return outcome;
    } catch (error) {
      const mayPass = isProblem(error) && ['conflict', 'unavailable'].includes(error.problem);
      await told(mayPass ? { status: 'postponed' } : { status: 'refused', why: sentenceOf(error) });
      throw error;
    }
  }

  async #look(settings: SyncSettings, request: PullRequest): Promise<PulledLayers> {
    const { timeoutSeconds, maxBytes } = settings;
    const dryRun = onlyLooks(settings, request);
    const signal = abortAfter(timeoutSeconds * 1000, this.#left.signal);
    const source = this.#open(settings);
    if (!signal.aborted) this.#unwatch ??= source.watch?.(() => this.#ring());
    const pulled = await pullLayers({
      source,
      layers: this.#layers(settings),
      stored: this.#folder.stored(),
      bounds: { maxBytes, signal, dryRun },
    }).catch((error: unknown) => {
      this.#refuseOther(settings);
      if (signal.aborted && !isProblem(error)) throw problem('unavailable', 'The source does not answer in time.');
      throw error;
    });
    this.#refuseOther(settings);
    this.#seen = pulled.files;
    this.#skipped = pulled.skipped;
    return pulled;
  }

  #refuseOther(settings: SyncSettings): void {
    if (this.#settings !== settings) throw problem('conflict', 'The source was changed meanwhile.');
  }

  async #bring(pulled: PulledLayers, settings: SyncSettings, request: PullRequest): Promise<SyncOutcome> {
    const { by, unasked = false } = request;
    const { files, wanted } = pulled;
    if (!this.#waiting() && touchedFiles(this.#folder.stored()).length === 0) {
      return this.#outcome(request.dryRun === true ? 'dryRun' : 'unchanged', pulled, settings);
    }
    const keep = (): Promise<() => Promise<void>> => this.#folder.replace(this.#shown(settings), this.#now(), files);
    const layers = { files, keep };
    const dryRun = onlyLooks(settings, request);
    const outcome = await this.#offer.make(files, unasked && !wanted, () =>
      this.#input.reloading.reload({ by, layers, ...(dryRun ? { dryRun } : { unasked }) }),
    );
    if (!dryRun) await this.#folder.sweep();
    return this.#outcome(dryRun ? 'dryRun' : 'applied', pulled, settings, outcome);
  }

  #outcome(
    status: SyncOutcome['status'],
    { files, skipped }: PulledLayers,
    settings: SyncSettings,
    reload?: ReloadOutcome,
  ): SyncOutcome {
    return {
      status,
      source: this.#shown(settings),
      files: files.map(({ name, layer, sha256 }) => ({ file: name, layer, sha256 })),
      skipped,
      changed: reload?.changed ?? [],
      restartRequired: reload?.restartRequired ?? [],
      differences: reload?.differences ?? [],
      failed: reload?.failed ?? [],
    };
  }

  #failed(error: unknown): void {
    const kind = isProblem(error) ? error.problem : 'internal';
    const known = this.#lastSuccess !== null || this.#folder.applied() !== undefined;
    const mendsItself = kind !== 'invalid' && (known || kind === 'conflict');
    const sentence = sentenceOf(error);
    if (this.#trouble?.error !== sentence) {
      this.#input.log.warn({ err: error }, 'sync: nothing was changed');
    }
    this.#trouble = { state: mendsItself ? 'stale' : 'error', error: sentence };
    this.#input.count(this.#trouble.state);
  }

  #state(): SyncState {
    if (this.#settings === undefined) return 'off';
    if (this.#trouble !== undefined) return this.#trouble.state;
    const inStep = this.#seen !== undefined && !this.#waiting() && touchedFiles(this.#folder.stored()).length === 0;
    return inStep ? 'ok' : 'stale';
  }

  /** True when the source differs from the applied files. */
  #waiting(): boolean {
    return this.#seen !== undefined && differingFiles(this.#seen, this.#folder.applied()?.files ?? []).length > 0;
  }

  async #drift(): Promise<Drift> {
    const applied = this.#folder.applied();
    const disk = touchedFiles(this.#folder.stored(applied));
    const source = this.#seen === undefined ? [] : differingFiles(this.#seen, applied?.files ?? []);
    try {
      const { changed, restartRequired } = await this.#input.reloading.reload({ by: 'sync status', dryRun: true });
      return { source, disk, running: { changed, restartRequired, error: null } };
    } catch (error) {
      if (!isProblem(error)) throw error;
      return { source, disk, running: { changed: [], restartRequired: [], error: error.message } };
    }
  }

  #open(settings: SyncSettings): ConfigurationSource {
    if (this.#opened?.settings === settings) return this.#opened.source;
    const { source: address, token, username, password } = settings;
    const { file } = this.#input.configuration;
    const folder = file === null ? '.' : dirname(file);
    const defaultName = `${this.#layers(settings)[0] ?? 'base'}.json5`;
    const source = this.#input.kinds.open({ address, folder, token, username, password, defaultName });
    this.#opened = { settings, source };
    return source;
  }

  /** An invalid address is not shown: it may contain secrets. */
  #shown(settings: SyncSettings): string {
    try {
      return this.#open(settings).shown;
    } catch {
      return redactText(settings.source.replace(/\/\/[^/@]*@/, '//').replace(/\?.*$/s, '?…'));
    }
  }

  #layers({ layers, server }: SyncSettings): readonly string[] {
    return layersFor(layers, server ?? this.#input.configuration.hostname);
  }

  #ring(): void {
    this.#rung = true;
    if (!this.#pulling) this.#schedule(lookSoonMs);
  }

  #schedule(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#input.stopping.aborted) return;
    this.#timer = setTimeout(() => {
      const settings = this.#settings;
      // Another source has its own interval.
      const next = (): void => {
        if (settings === undefined || this.#settings !== settings || this.#rung) return;
        this.#schedule(settings.intervalSeconds * 1000);
      };
      // The check of an earlier source ends soon.
      if (this.#pulling) this.#schedule(lookSoonMs);
      // The status, health and the log have the error.
      else this.pull({ by: 'sync', unasked: true }).then(next, next);
    }, ms).unref();
  }

  #now(): string {
    return new Date(this.#input.clock.now()).toISOString();
  }
}

/** Whether nothing is applied, but compared. */
const onlyLooks = ({ apply }: SyncSettings, { dryRun, unasked }: PullRequest): boolean =>
  dryRun === true || (unasked === true && apply === 'manual');

const sentenceOf = (error: unknown): string =>
  redactText(isProblem(error) ? error.message : 'It failed; the log says why.');

type SyncState = 'off' | 'ok' | 'stale' | 'error';

interface AppliedFile {
  readonly file: string;
  readonly layer: string;
  readonly sha256: string;
}

/** Files that differ. */
interface Drift {
  /** Files that differed between the source and the applied ones at the last check. */
  readonly source: readonly string[];
  /** Applied files that were edited or removed in the data folder. */
  readonly disk: readonly string[];
  /** What a reload, or a restart, would change in the running server; `error` when the files on disk are invalid. */
  readonly running: {
    readonly changed: readonly string[];
    readonly restartRequired: readonly string[];
    readonly error: string | null;
  };
}

export interface SyncSummary {
  /**
   * `stale`: the applied state may be old; it recovers by itself, or with POST /config/sync. `error`: an operator must
   * act.
   */
  readonly state: SyncState;
  /** Without credentials. */
  readonly source: string | null;
  readonly lastAttempt: string | null;
  readonly lastSuccess: string | null;
  readonly error: string | null;
}

export interface SyncStatus extends SyncSummary {
  readonly layers: readonly string[];
  readonly apply: 'automatic' | 'manual' | null;
  readonly intervalSeconds: number | null;
  readonly appliedAt: string | null;
  readonly applied: readonly AppliedFile[];
  readonly skipped: readonly SkippedFile[];
  /** Null when there is no source. */
  readonly drift: Drift | null;
  /** Those that have the same source, where that knows them. */
  readonly servers: readonly SourceServer[];
}

const syncIsOff: SyncStatus = {
  state: 'off',
  source: null,
  layers: [],
  apply: null,
  intervalSeconds: null,
  lastAttempt: null,
  lastSuccess: null,
  appliedAt: null,
  applied: [],
  skipped: [],
  drift: null,
  error: null,
  servers: [],
};

/** Files that differ between the two, or are missing in one. */
function differingFiles(
  one: readonly { readonly name: string; readonly sha256: string }[],
  other: readonly { readonly name: string; readonly sha256: string }[],
): readonly string[] {
  const hashes = new Map(other.map(({ name, sha256 }) => [name, sha256]));
  const names = new Set(one.map(({ name }) => name));
  return [
    ...one.filter(({ name, sha256 }) => hashes.get(name) !== sha256).map(({ name }) => name),
    ...other.filter(({ name }) => !names.has(name)).map(({ name }) => name),
  ];
}

/** Applied files that no longer have the applied content. */
const touchedFiles = (stored: readonly StoredLayer[]): readonly string[] =>
  stored.filter(({ text, sha256 }) => text === undefined || sha256Of(text) !== sha256).map(({ name }) => name);
