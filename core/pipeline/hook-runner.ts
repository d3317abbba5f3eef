import { targets } from '../contracts/targets.js';
import type { Clock } from '../clock.js';
import type { Log } from '../log/log.js';
import { classOf, isProblem } from '../problem.js';
import { replies, reply, type Reply, replyToError } from '../smtp/protocol/replies.js';
import { type Mark, markOf, runAs } from '../watchdog/running-code.js';
import type { Hook, HookDescription, HookOptions, Phase, StageInput } from './hook.js';
import {
  type AuthenticatedUser,
  type Change,
  checkVerdict,
  defer,
  type Hop,
  reject,
  type Stage,
  type Verdict,
} from './verdict.js';
import type { Decision, PlacedHook } from './transaction-pipeline.js';
import { BodyError } from '../spool/spool.js';
import type { SmtpSession } from './transaction.js';

export interface RunContext<S extends Stage> {
  readonly log: Log;
  readonly hasTarget: (name: string) => boolean;
  /** Applies changes and returns the input of the hooks that follow. */
  readonly change?: (changes: readonly Change[], limitMs: number) => StageInput[S] | Promise<StageInput[S]>;
  /** Plugins in shadow mode: their verdicts are only recorded. */
  readonly shadowed?: ReadonlySet<string>;
  /** Called with each verdict; hooks observed this way are not counted. */
  readonly trace?: (hook: RegisteredHook<S>, verdict: Verdict) => void;
  /** Called with each verdict, also of shadowed plugins; for tests. */
  readonly observe?: HookObserver;
}

/** The checked verdict of one hook. */
export interface HookAnswer {
  readonly plugin: string;
  readonly stage: Stage;
  readonly phase: Phase;
  readonly input: StageInput[Stage];
  readonly verdict: Verdict;
}

export type HookObserver = (answer: HookAnswer) => void;

const pass: Decision = Object.freeze({ outcome: 'pass' });
const notSignedIn: Decision = Object.freeze({ outcome: 'refuse', reply: replies.authFailed });
const notRelayed: Decision = Object.freeze({ outcome: 'refuse', reply: replies.notRelayed });

/** One pass through the hooks of a stage. Creates no promise as long as no hook does. */
export class HookRunner<S extends Stage> {
  readonly #stage: S;
  readonly #hooks: readonly RegisteredHook<S>[];
  readonly #context: RunContext<S>;
  #input: StageInput[S];
  #position = 0;
  #accepted: Phase | undefined;
  #user: AuthenticatedUser | undefined;
  #hop: Hop | undefined;
  #reply: Reply | undefined;

  constructor(stage: S, hooks: readonly RegisteredHook<S>[], input: StageInput[S], context: RunContext<S>) {
    this.#stage = stage;
    this.#hooks = hooks;
    this.#input = input;
    this.#context = context;
  }

  /** Never throws or rejects. */
  run(): Decision | Promise<Decision> {
    for (let hook = this.#next(); hook !== undefined; hook = this.#next()) {
      const asked = hook;
      const verdict = asked.ask(this.#input, this.#context.trace === undefined);
      if (verdict instanceof Promise)
        return verdict.then(async (late) => (await this.#apply(asked, late)) ?? this.run());
      const decision = this.#apply(asked, verdict);
      if (decision instanceof Promise) return decision.then((late) => late ?? this.run());
      if (decision !== undefined) return decision;
    }
    return this.#defaultVerdict();
  }

  /** After a `route`, the rest of the routing phases is skipped; all other phases run. */
  #next(): RegisteredHook<S> | undefined {
    for (let hook = this.#hooks[this.#position++]; hook !== undefined; hook = this.#hooks[this.#position++]) {
      const isRouted = this.#hop !== undefined && hook.phase === 'route';
      const isMeant = !hook.signedIn || sessionOf(this.#input).user !== undefined;
      if (hook.phase !== this.#accepted && !isRouted && isMeant) return hook;
    }
    return undefined;
  }

  /** The decision of a verdict; undefined to continue with the next hook. */
  #apply(hook: RegisteredHook<S>, verdict: Verdict): Decision | undefined | Promise<Decision | undefined> {
    this.#context.trace?.(hook, verdict);
    this.#context.observe?.({
      plugin: hook.plugin,
      stage: this.#stage,
      phase: hook.phase,
      input: this.#input,
      verdict,
    });
    if (this.#context.shadowed?.has(hook.plugin) === true) return this.#shadow(hook, verdict);
    switch (verdict.kind) {
      case 'next':
        break;
      case 'accept':
        this.#accepted = hook.phase;
        this.#user ??= verdict.user;
        break;
      case 'reject':
      case 'defer':
        return refusal(verdict, hook.plugin);
      case 'discard':
        this.#context.log.info({ ...this.#subject(hook), reason: verdict.reason }, 'discarded by a hook');
        return { outcome: 'discard', reason: verdict.reason };
      case 'hold':
        return this.#hold(hook, verdict.reason);
      case 'route':
        return this.#route(hook, verdict.hop, verdict.reply);
      case 'change':
        return this.#change(hook, verdict.changes);
    }
    return undefined;
  }

  #change(hook: RegisteredHook<S>, changes: readonly Change[]): Promise<Decision | undefined> | undefined {
    const changed = this.#context.change?.(changes, hook.timeLimitMs);
    if (!(changed instanceof Promise)) {
      this.#input = changed ?? this.#input;
      return undefined;
    }
    return changed.then(
      (input) => void (this.#input = input),
      (error: unknown) => {
        if (error instanceof BodyError) return failure(hook, error.message, this.#input, error.cause);
        this.#context.log.error({ ...this.#subject(hook), err: error }, 'a message could not be changed');
        return { outcome: 'refuse', reply: replyToError(error) };
      },
    );
  }

  /** Recorded, not followed. */
  #shadow(hook: RegisteredHook<S>, verdict: Verdict): undefined {
    if (verdict.kind === 'next' || this.#context.trace !== undefined) return;
    hook.shadow();
    const { postern, ...said } = verdict;
    void postern;
    this.#context.log.info({ ...this.#subject(hook), verdict: said }, 'a shadowed hook would have decided');
  }

  /** The first one counts. */
  #route(hook: RegisteredHook<S>, hop: Hop, answer: Reply | undefined): Decision | undefined {
    if (this.#hop !== undefined) return undefined;
    if (!this.#context.hasTarget(hop.target)) {
      return failure(hook, `no plugin delivers to the target ${JSON.stringify(hop.target)}`, this.#input);
    }
    this.#hop = hop;
    this.#reply = answer;
    return undefined;
  }

  /** For a recipient: routing ends, and `last` may still object. For a message: the stage ends. */
  #hold(hook: RegisteredHook<S>, reason: string): Decision | undefined {
    if (!this.#context.hasTarget(targets.hold)) {
      return failure(hook, 'hold needs a target named hold, and no plugin has one', this.#input);
    }
    this.#context.log.info({ ...this.#subject(hook), reason }, 'held by a hook');
    this.#hop = { target: targets.hold, destination: '', data: { reason, plugin: hook.plugin } };
    this.#reply = undefined;
    return this.#stage === 'rcptTo' ? undefined : { outcome: 'pass', hop: this.#hop };
  }

  /** No hook objected. That is a yes, except where a stage requires one. */
  #defaultVerdict(): Decision {
    if (this.#stage === 'auth') return this.#user === undefined ? notSignedIn : { outcome: 'pass', user: this.#user };
    if (this.#stage === 'rcptTo') return this.#routed();
    return pass;
  }

  #routed(): Decision {
    const answer = this.#reply;
    if (this.#hop === undefined) return notRelayed;
    return { outcome: 'pass', hop: this.#hop, ...(answer !== undefined && { reply: answer }) };
  }

  #subject(hook: RegisteredHook<S>): Readonly<Record<string, unknown>> {
    if ('attempt' in this.#input) return { plugin: hook.plugin, stage: this.#stage, uid: this.#input.attempt.id };
    const transaction = 'transaction' in this.#input ? this.#input.transaction.id : undefined;
    return { plugin: hook.plugin, stage: this.#stage, transaction };
  }
}

const sessionOf = (input: StageInput[Stage]): Partial<SmtpSession> => {
  if ('session' in input) return input.session;
  return 'transaction' in input ? input.transaction.session : {};
};

function refusal({ code, status, text }: Extract<Verdict, { kind: 'reject' | 'defer' }>, plugin: string): Decision {
  return { outcome: 'refuse', reply: reply(code, status, text), plugin };
}

function failure<S extends Stage>(
  hook: RegisteredHook<S>,
  why: string,
  input: StageInput[S],
  cause?: unknown,
): Decision {
  hook.fail(why, input, cause);
  return { outcome: 'refuse', reply: replies.fault, plugin: hook.plugin };
}

/** The verdict of a failed hook: temporary, never "continue". */
const localError = defer(replies.fault.code, '4.3.0', 'Local error, try again later');

interface HookPlace extends HookOptions {
  readonly plugin: string;
  /** In milliseconds. */
  readonly timeLimitMs: number;
}

interface HookContext {
  readonly log: Log;
  readonly clock: Clock;
  /** Called with each failure. */
  readonly failed?: (why: string) => void;
}

/** A hook with its position, its time limit and its counters. */
export class RegisteredHook<S extends Stage> implements PlacedHook {
  readonly plugin: string;
  readonly phase: Phase;
  readonly before?: string | readonly string[];
  readonly after?: string | readonly string[];
  readonly signedIn: boolean;
  readonly #stage: S;
  readonly timeLimitMs: number;
  readonly #hook: Hook<S>;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #mark: Mark;
  readonly #failed: HookContext['failed'];
  #calls = 0;
  #failures = 0;
  #shadowed = 0;

  constructor(stage: S, place: HookPlace, hook: Hook<S>, { log, clock, failed }: HookContext) {
    const { plugin, order = 'policy', before, after, signedIn = false, timeLimitMs } = place;
    this.#stage = stage;
    this.plugin = plugin;
    this.phase = order;
    if (before !== undefined) this.before = before;
    if (after !== undefined) this.after = after;
    this.signedIn = signedIn;
    this.timeLimitMs = timeLimitMs;
    this.#hook = hook;
    this.#log = log;
    this.#clock = clock;
    this.#mark = markOf(plugin, `hook ${stage}`);
    this.#failed = failed;
  }

  /** Never throws or rejects. A promise only when the hook returned one, bounded by its time limit. */
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

  /** Counts and logs an invalid verdict; returns the verdict that replaces it. */
  fail(why: string, input: StageInput[S], cause?: unknown): Verdict {
    this.#failures += 1;
    this.#failed?.(cause instanceof Error ? `${why}: ${cause.message}` : why);
    this.#log.error({ ...this.#place(input), why, ...(cause !== undefined && { err: cause }) }, 'a hook failed');
    return localError;
  }

  /** In shadow mode it would have decided. */
  shadow(): void {
    this.#shadowed += 1;
  }

  describe(mode: HookDescription['mode']): HookDescription {
    const { plugin, phase } = this;
    const { before = [], after = [] } = this;
    const placed = { before: [before].flat(), after: [after].flat() };
    const counts = { calls: this.#calls, failures: this.#failures, shadowed: this.#shadowed };
    return { stage: this.#stage, phase, plugin, mode, ...placed, timeLimitMs: this.timeLimitMs, ...counts };
  }

  /** Resolves with the verdict or, after the time limit, with a failure; a later result is only logged. */
  #await(promise: PromiseLike<unknown>, input: StageInput[S]): Promise<Verdict> {
    const began = this.#clock.monotonic();
    return new Promise((resolve) => {
      let overrun = false;
      const timer = setTimeout(() => {
        overrun = true;
        resolve(this.fail(`took longer than ${this.timeLimitMs} ms`, input));
      }, this.timeLimitMs);
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

  /** A problem carries its reply; one caused by the client is no failure of the hook. */
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
    if ('attempt' in input) return { plugin: this.plugin, stage: this.#stage, uid: input.attempt.id };
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
