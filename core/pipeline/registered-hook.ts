import type { Clock } from '../clock.js';
import type { Log } from '../log/log.js';
import { classOf, isProblem } from '../problem.js';
import { type Mark, markOf, runAs } from '../watchdog/running-code.js';
import type { Hook, HookDescription, HookOptions, Phase, Stage, StageInput } from './hook.js';
import type { PlacedHook } from './hook-order.js';
import { replies, replyToError } from '../smtp/protocol/replies.js';
import { defer, reject, type Verdict } from './verdict.js';
import { checkVerdict } from './verdict-check.js';

/** What a hook that fails counts as: temporary, and never "continue". */
const localError = defer(replies.fault.code, '4.3.0', 'Local error, try again later');

export interface HookPlace extends HookOptions {
  readonly plugin: string;
  /** In milliseconds. */
  readonly timeLimitMs: number;
}

interface HookGround {
  readonly log: Log;
  readonly clock: Clock;
  /** Told of each failure. */
  readonly failed?: (why: string) => void;
}

/** A hook with its place, its time limit and its counts. */
export class RegisteredHook<S extends Stage> implements PlacedHook {
  readonly plugin: string;
  readonly phase: Phase;
  readonly before?: string | readonly string[];
  readonly after?: string | readonly string[];
  readonly signedIn: boolean;
  readonly #stage: S;
  readonly #timeLimitMs: number;
  readonly #hook: Hook<S>;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #mark: Mark;
  readonly #failed: HookGround['failed'];
  #calls = 0;
  #failures = 0;
  #shadowed = 0;

  constructor(stage: S, place: HookPlace, hook: Hook<S>, { log, clock, failed }: HookGround) {
    const { plugin, order = 'policy', before, after, signedIn = false, timeLimitMs } = place;
    this.#stage = stage;
    this.plugin = plugin;
    this.phase = order;
    if (before !== undefined) this.before = before;
    if (after !== undefined) this.after = after;
    this.signedIn = signedIn;
    this.#timeLimitMs = timeLimitMs;
    this.#hook = hook;
    this.#log = log;
    this.#clock = clock;
    this.#mark = markOf(plugin, `hook ${stage}`);
    this.#failed = failed;
  }

  /** Never throws or rejects. A promise only when the hook gave one, and for no longer than its limit. */
  ask(input: StageInput[S], counted = true): Verdict | Promise<Verdict> {
    if (counted) this.#calls += 1;
    try {
      return runAs(this.#mark, () => {
        const answer: unknown = this.#hook(input);
        return isThenable(answer) ? this.#await(answer, input) : this.#read(answer, input);
      });
    } catch (error) {
      return this.#thrown(error, input);
    }
  }

  /** Counts and logs that the hook answered what cannot be followed; gives the verdict that takes its place. */
  fail(why: string, input: StageInput[S], cause?: unknown): Verdict {
    this.#failures += 1;
    this.#failed?.(cause instanceof Error ? `${why}: ${cause.message}` : why);
    this.#log.error({ ...this.#place(input), why, ...(cause !== undefined && { err: cause }) }, 'a hook failed');
    return localError;
  }

  /** It would have decided, if it were followed. */
  shadow(): void {
    this.#shadowed += 1;
  }

  describe(mode: HookDescription['mode']): HookDescription {
    const { plugin, phase } = this;
    const { before = [], after = [] } = this;
    const placed = { before: [before].flat(), after: [after].flat() };
    const counts = { calls: this.#calls, failures: this.#failures, shadowed: this.#shadowed };
    return { stage: this.#stage, phase, plugin, mode, ...placed, timeLimitMs: this.#timeLimitMs, ...counts };
  }

  /** Resolves with the answer or, when that takes too long, with a failure; what comes later is only logged. */
  #await(promise: PromiseLike<unknown>, input: StageInput[S]): Promise<Verdict> {
    const began = this.#clock.monotonic();
    return new Promise((resolve) => {
      let overrun = false;
      const timer = setTimeout(() => {
        overrun = true;
        resolve(this.fail(`took longer than ${this.#timeLimitMs} ms`, input));
      }, this.#timeLimitMs);
      const settle = (outcome: Readonly<Record<string, unknown>>, verdict: () => Verdict): void => {
        clearTimeout(timer);
        if (!overrun) return resolve(verdict());
        const late = { ...this.#place(input), ...outcome, ms: Math.round(this.#clock.monotonic() - began) };
        this.#log.warn(late, 'a hook answered too late; the answer was ignored');
      };
      promise.then(
        (value) => settle({}, () => this.#read(value, input)),
        (error: unknown) => settle({ err: error }, () => this.#thrown(error, input)),
      );
    });
  }

  #read(answer: unknown, input: StageInput[S]): Verdict {
    try {
      const verdict = checkVerdict(answer, this.#stage);
      return typeof verdict === 'string' ? this.fail(verdict, input) : verdict;
    } catch (error) {
      return this.fail('the answer cannot be read', input, error);
    }
  }

  /** A problem says how to answer; one that is the peer's doing is no failure of the hook. */
  #thrown(error: unknown, input: StageInput[S]): Verdict {
    if (!isProblem(error)) return this.fail('threw', input, error);
    const { code, status, lines } = replyToError(error);
    if (classOf(error).http >= 500) this.fail(`threw ${error.problem}`, input, error.details.cause ?? error);
    const text = lines.join(' ');
    return code >= 500 ? reject(code, status ?? '5.0.0', text) : defer(code, status ?? '4.0.0', text);
  }

  #place(input: StageInput[S]): Readonly<Record<string, unknown>> {
    const transaction = 'transaction' in input ? input.transaction : undefined;
    const session = 'session' in input ? input.session : transaction?.session;
    return {
      plugin: this.plugin,
      stage: this.#stage,
      session: session?.id,
      ...(transaction !== undefined && { transaction: transaction.id }),
    };
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}
