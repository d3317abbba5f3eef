import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { Clock } from '../clock.js';
import type { SeenStall, StallWatch } from '../contracts/stall-watch.js';
import { writeFileAtomic } from '../disk/atomic.js';
import type { HealthReport } from '../contracts/health.js';
import { packageRoot } from '../host/installation.js';
import { siteUrlOf } from '../host/site-plugins.js';
import type { Log } from '../log/log.js';
import type { Plugin } from '../plugin.js';
import { closeOpenStalls, stallCause, durationText, readStalls, stallFile, type StallRecord } from './stall-record.js';
import type { FromThread } from './main-watch.js';
import { type Thresholds, thresholdsOf, type WatchdogSettings } from './options.js';
import { followMarks, type CodeLocation, running } from './running-code.js';
import type { WorkerData, ToThread } from './watch-thread.js';

const thread = new URL('./watch-thread.js', import.meta.url);
/** How long health reports a stall that is over, and one that ended the previous run. */
const rememberedMs = 3_600_000;
const endRememberedMs = 24 * rememberedMs;
/** How long `close` waits for the thread to write its record. */
const closeTimeoutMs = 2000;

interface WatchdogDeps {
  /** Absolute path of the data folder. */
  readonly data: string;
  readonly settings: WatchdogSettings;
  readonly log: Log;
  readonly clock: Clock;
}

interface Observer {
  readonly aboveMs: number;
  readonly tell: (stall: SeenStall) => void;
}

/** The main thread's side: beats, and receives what the watching thread saw. */
export class Watchdog implements StallWatch {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #worker: Worker;
  readonly #exited: Promise<void>;
  readonly #unfollow: () => void;
  readonly #observers = new Set<Observer>();
  readonly #beat: Int32Array;
  readonly #startedAt: number;
  #settings: WatchdogSettings;
  #intervalMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #newest: StallRecord | undefined;
  #workerFailed = false;
  #closing = false;
  /** The stall that ended the previous run. */
  readonly #endedIn: StallRecord | undefined;

  /** Starts to watch. Closes and logs a stall that the previous run left open. */
  static async open(input: WatchdogDeps): Promise<Watchdog> {
    const { data, log, clock } = input;
    try {
      const before = await readStalls(data);
      const endedIn = before.find(({ until }) => until === null);
      if (endedIn === undefined) return new Watchdog(input, before, undefined);
      const stalls = closeOpenStalls(before, clock.now());
      await writeFileAtomic(join(data, stallFile), `${JSON.stringify({ stalls }, null, 2)}\n`);
      log.error({ since: endedIn.since, ...stallFields(endedIn) }, 'the last run ended in a stall');
      return new Watchdog(input, stalls, endedIn);
    } catch (error) {
      log.error({ err: error, file: stallFile }, 'the record of stalls cannot be read or written');
      return new Watchdog(input, [], undefined);
    }
  }

  private constructor(input: WatchdogDeps, stalls: readonly StallRecord[], endedIn: StallRecord | undefined) {
    const { data, settings, log, clock } = input;
    this.#log = log;
    this.#clock = clock;
    this.#settings = settings;
    this.#endedIn = endedIn;
    this.#startedAt = clock.monotonic();
    this.#beat = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const thresholds = this.#thresholds();
    const file = join(data, stallFile);
    const workerData: WorkerData = { beat: this.#beat, running, file, thresholds, stalls };
    this.#worker = new Worker(thread, { env: {}, execArgv: [], name: 'watchdog', workerData });
    this.#worker.unref();
    this.#worker.on('message', (message: FromThread) => this.#receive(message));
    this.#worker.on('error', (error) => this.#log.error({ err: error }, 'the watchdog failed'));
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#workerFailed = !this.#closing;
        resolve();
      });
    });
    this.#unfollow = followMarks((mark, code) => this.#send({ mark, code }));
    this.#beatEvery(thresholds.intervalMs);
  }

  get reportedAboveMs(): number {
    return this.#settings.stallSeconds * 1000;
  }

  observe(aboveMs: number, tell: (stall: SeenStall) => void): () => void {
    const observer = { aboveMs, tell };
    this.#observers.add(observer);
    this.#adjust();
    return () => {
      this.#observers.delete(observer);
      this.#adjust();
    };
  }

  runDeliberateStall<T>(run: () => T): T {
    this.#send({ deliberate: true });
    try {
      return run();
    } finally {
      this.#send({ deliberate: false });
    }
  }

  setThresholds(settings: WatchdogSettings): void {
    this.#settings = settings;
    this.#adjust();
  }

  /** Lets stacks name the plugin whose code they show. */
  setCodeLocations(places: readonly CodeLocation[]): void {
    this.#send({ places });
  }

  health(): HealthReport {
    const [ended, newest, now] = [this.#endedIn, this.#newest, this.#clock.now()];
    if (this.#workerFailed)
      return { status: 'degraded', why: 'The thread that watches for stalls has ended; restart the server.' };
    if (ended !== undefined && this.#clock.monotonic() - this.#startedAt < endRememberedMs) {
      const how = ended.outcome === 'killed' ? 'was ended by the watchdog' : 'ended';
      const why = `The run before this one ${how} while nothing was answered, since ${ended.since}: ${stallCause(ended)}.`;
      return { status: 'degraded', why };
    }
    if (newest?.until !== null && newest !== undefined && now - Date.parse(newest.until) < rememberedMs) {
      const ms = Date.parse(newest.until) - Date.parse(newest.since);
      const why = `Nothing was answered for ${durationText(ms)} from ${newest.since} on: ${stallCause(newest)}.`;
      return { status: 'degraded', why };
    }
    return { status: 'up' };
  }

  /** The end of a stall is recorded before the process may exit. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    // Prevents a kill for a stall that has just ended.
    Atomics.add(this.#beat, 0, 1);
    this.#unfollow();
    this.#send({ end: true });
    this.#closing = true;
    this.#worker.ref();
    const timer = setTimeout(() => void this.#worker.terminate(), closeTimeoutMs);
    await this.#exited;
    clearTimeout(timer);
  }

  #thresholds(): Thresholds {
    return thresholdsOf(
      this.#settings,
      [...this.#observers].map(({ aboveMs }) => aboveMs),
    );
  }

  #adjust(): void {
    const thresholds = this.#thresholds();
    if (thresholds.intervalMs !== this.#intervalMs) this.#beatEvery(thresholds.intervalMs);
    this.#send({ thresholds });
  }

  #beatEvery(ms: number): void {
    clearInterval(this.#timer);
    this.#intervalMs = ms;
    this.#timer = setInterval(() => void Atomics.add(this.#beat, 0, 1), ms).unref();
  }

  #send(message: ToThread): void {
    if (!this.#closing) this.#worker.postMessage(message, []);
  }

  #receive(message: FromThread): void {
    if ('ended' in message) {
      void this.#worker.terminate();
      return;
    }
    if ('unwritten' in message) {
      this.#log.error({ code: message.unwritten, file: stallFile }, 'a stall could not be recorded');
      return;
    }
    const { stall, record } = message;
    // Before the plugins are set up no client waits for an answer.
    if (record !== null && record.doing !== 'setup') this.#newest = record;
    const { ms, plugin, doing, stacks } = stall;
    const what = stallFields({ plugin, doing, frames: stacks[0] ?? [] });
    this.#log.warn({ ms, since: stall.at, ...what }, 'the event loop stood still');
    for (const { aboveMs, tell } of this.#observers) {
      if (record !== null || (aboveMs > 0 && ms >= aboveMs)) tell(stall);
    }
  }
}

const stallFields = ({
  plugin,
  doing,
  frames,
}: Pick<StallRecord, 'plugin' | 'doing'> & { frames: readonly string[] }) => ({
  ...(plugin !== null && { plugin, doing }),
  stack: frames.slice(0, 10),
});

/** Stands in where no thread watches. */
export const noWatchdog: StallWatch = {
  reportedAboveMs: 0,
  observe: () => () => undefined,
  runDeliberateStall: (run) => run(),
};

/** Where the code of each plugin is: a site plugin's where it was loaded from, a built-in one's in this package. */
export function codeLocationsOf(plugins: readonly Plugin[]): readonly CodeLocation[] {
  return plugins.map((plugin) => ({
    plugin: plugin.name,
    url: siteUrlOf(plugin) ?? `${pathToFileURL(join(packageRoot, 'dist', 'plugins', plugin.name)).href}/`,
  }));
}
