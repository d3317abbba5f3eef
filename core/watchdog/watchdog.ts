import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Clock } from '../clock.js';
import type { SeenStall, StallWatch } from '../contracts/stall-watch.js';
import { writeFileAtomic } from '../disk/atomic.js';
import type { HealthReport } from '../host/health.js';
import type { Log } from '../log/log.js';
import { culpritOf, durationText } from './culprit.js';
import type { FromThread } from './main-watch.js';
import type { WatchdogSettings } from './options.js';
import type { PluginPlace } from './plugin-place.js';
import { followMarks, running } from './running-code.js';
import { closed, readStalls, stallFile, type StallRecord } from './stall-file.js';
import { thresholdsOf, type Thresholds } from './thresholds.js';
import type { ThreadInput, ToThread } from './watch-thread.js';

const thread = new URL('./watch-thread.js', import.meta.url);
/** How long health remembers a stall that is over, and one that ended the run before this one. */
const rememberedMs = 3_600_000;
const endRememberedMs = 24 * rememberedMs;
/** How long a stop waits for the thread to write what it knows. */
const patienceMs = 2000;

export interface WatchdogInput {
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

/** The main thread's side of the thread that watches it: beats, and hears afterwards what was seen. */
export class Watchdog implements StallWatch {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #worker: Worker;
  readonly #gone: Promise<void>;
  readonly #unfollow: () => void;
  readonly #observers = new Set<Observer>();
  readonly #beat: Int32Array;
  readonly #startedAt: number;
  #settings: WatchdogSettings;
  #everyMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #newest: StallRecord | undefined;
  #blind = false;
  #closing = false;
  /** In which the run before this one ended. */
  readonly #endedIn: StallRecord | undefined;

  /** Watches from now on. What a run before this one has left on record is closed and told. */
  static async open(input: WatchdogInput): Promise<Watchdog> {
    const { data, log, clock } = input;
    try {
      const before = await readStalls(data);
      const endedIn = before.find(({ until }) => until === null);
      if (endedIn === undefined) return new Watchdog(input, before, undefined);
      const stalls = closed(before, clock.now());
      await writeFileAtomic(join(data, stallFile), `${JSON.stringify({ stalls }, null, 2)}\n`);
      log.error({ since: endedIn.since, ...whatOf(endedIn) }, 'the last run ended in a stall');
      return new Watchdog(input, stalls, endedIn);
    } catch (error) {
      log.error({ err: error, file: stallFile }, 'the record of stalls cannot be read or written');
      return new Watchdog(input, [], undefined);
    }
  }

  private constructor(input: WatchdogInput, stalls: readonly StallRecord[], endedIn: StallRecord | undefined) {
    const { data, settings, log, clock } = input;
    this.#log = log;
    this.#clock = clock;
    this.#settings = settings;
    this.#endedIn = endedIn;
    this.#startedAt = clock.monotonic();
    this.#beat = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const thresholds = this.#thresholds();
    const file = join(data, stallFile);
    const workerData: ThreadInput = { beat: this.#beat, running, file, thresholds, stalls };
    this.#worker = new Worker(thread, { env: {}, execArgv: [], name: 'watchdog', workerData });
    this.#worker.unref();
    this.#worker.on('message', (message: FromThread) => this.#hear(message));
    this.#worker.on('error', (error) => this.#log.error({ err: error }, 'the watchdog failed'));
    this.#gone = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#blind = !this.#closing;
        resolve();
      });
    });
    this.#unfollow = followMarks((mark, code) => this.#say({ mark, code }));
    this.#beatEvery(thresholds.everyMs);
  }

  get alwaysAboveMs(): number {
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

  standStill<T>(run: () => T): T {
    this.#say({ deliberate: true });
    try {
      return run();
    } finally {
      this.#say({ deliberate: false });
    }
  }

  use(settings: WatchdogSettings): void {
    this.#settings = settings;
    this.#adjust();
  }

  /** Where the code of plugins lies, so that a stack tells whose it is. */
  know(places: readonly PluginPlace[]): void {
    this.#say({ places });
  }

  report(): HealthReport {
    const [ended, newest, now] = [this.#endedIn, this.#newest, this.#clock.now()];
    if (this.#blind)
      return { status: 'degraded', why: 'The thread that watches for stalls has ended; restart the server.' };
    if (ended !== undefined && this.#clock.monotonic() - this.#startedAt < endRememberedMs) {
      const how = ended.outcome === 'killed' ? 'was ended by the watchdog' : 'ended';
      const why = `The run before this one ${how} while nothing was answered, since ${ended.since}: ${culpritOf(ended)}.`;
      return { status: 'degraded', why };
    }
    if (newest?.until !== null && newest !== undefined && now - Date.parse(newest.until) < rememberedMs) {
      const ms = Date.parse(newest.until) - Date.parse(newest.since);
      const why = `Nothing was answered for ${durationText(ms)} from ${newest.since} on: ${culpritOf(newest)}.`;
      return { status: 'degraded', why };
    }
    return { status: 'up' };
  }

  /** Behind a stall that has just ended, its end is written before the process may go. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    // One that is about to be ended for a stall that is over just now must not be.
    Atomics.add(this.#beat, 0, 1);
    this.#unfollow();
    this.#say({ end: true });
    this.#closing = true;
    this.#worker.ref();
    const timer = setTimeout(() => void this.#worker.terminate(), patienceMs);
    await this.#gone;
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
    if (thresholds.everyMs !== this.#everyMs) this.#beatEvery(thresholds.everyMs);
    this.#say({ thresholds });
  }

  #beatEvery(ms: number): void {
    clearInterval(this.#timer);
    this.#everyMs = ms;
    this.#timer = setInterval(() => void Atomics.add(this.#beat, 0, 1), ms).unref();
  }

  #say(message: ToThread): void {
    if (!this.#closing) this.#worker.postMessage(message, []);
  }

  #hear(message: FromThread): void {
    if ('ended' in message) {
      void this.#worker.terminate();
      return;
    }
    if ('unwritten' in message) {
      this.#log.error({ code: message.unwritten, file: stallFile }, 'a stall could not be written down');
      return;
    }
    const { stall, record } = message;
    // Before the plugins are set up nobody waits for an answer.
    if (record !== null && record.doing !== 'setup') this.#newest = record;
    const { ms, plugin, doing, stacks } = stall;
    const what = whatOf({ plugin, doing, frames: stacks[0] ?? [] });
    this.#log.warn({ ms, since: stall.at, ...what }, 'the event loop stood still');
    for (const { aboveMs, tell } of this.#observers) {
      if (record !== null || (aboveMs > 0 && ms >= aboveMs)) tell(stall);
    }
  }
}

const whatOf = ({ plugin, doing, frames }: Pick<StallRecord, 'plugin' | 'doing'> & { frames: readonly string[] }) => ({
  ...(plugin !== null && { plugin, doing }),
  stack: frames.slice(0, 10),
});
