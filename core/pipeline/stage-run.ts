import type { Log } from '../log/log.js';
import type { Decision } from './chain.js';
import type { Phase, Stage, StageInput } from './hook.js';
import type { RegisteredHook } from './registered-hook.js';
import { replies, reply, type Reply } from '../smtp/protocol/replies.js';
import type { SmtpSession } from './transaction.js';
import type { AuthenticatedUser, Change, Hop, Verdict } from './verdict.js';

/** Name of the target that keeps messages for an operator. */
const holdTarget = 'hold';

export interface StageGround<S extends Stage> {
  readonly log: Log;
  readonly hasTarget: (name: string) => boolean;
  /** Applies changes; what it returns is what the hooks behind see. */
  readonly change?: (changes: readonly Change[], input: StageInput[S]) => StageInput[S];
  /** Plugins whose verdicts are only looked at. */
  readonly shadowed?: ReadonlySet<string>;
  /** Told of each answer; hooks that are asked so are not counted. */
  readonly trace?: (hook: RegisteredHook<S>, verdict: Verdict) => void;
  /** Told of each answer as it counts; for tests. */
  readonly observe?: HookObserver;
}

/** What one hook has answered, after its answer was checked. */
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

/** One way through the hooks of a stage. Costs no promise as long as the hooks give none. */
export class StageRun<S extends Stage> {
  readonly #stage: S;
  readonly #hooks: readonly RegisteredHook<S>[];
  readonly #ground: StageGround<S>;
  #input: StageInput[S];
  #position = 0;
  #accepted: Phase | undefined;
  #user: AuthenticatedUser | undefined;
  #hop: Hop | undefined;
  #reply: Reply | undefined;

  constructor(stage: S, hooks: readonly RegisteredHook<S>[], input: StageInput[S], ground: StageGround<S>) {
    this.#stage = stage;
    this.#hooks = hooks;
    this.#input = input;
    this.#ground = ground;
  }

  /** Never throws or rejects. */
  decide(): Decision | Promise<Decision> {
    for (let hook = this.#next(); hook !== undefined; hook = this.#next()) {
      const asked = hook;
      const verdict = asked.ask(this.#input, this.#ground.trace === undefined);
      if (verdict instanceof Promise) return verdict.then((late) => this.#follow(asked, late) ?? this.decide());
      const decision = this.#follow(asked, verdict);
      if (decision !== undefined) return decision;
    }
    return this.#undisputed();
  }

  /** After a `route` the rest of routing is not asked, whatever phase it came from; all other phases are. */
  #next(): RegisteredHook<S> | undefined {
    for (let hook = this.#hooks[this.#position++]; hook !== undefined; hook = this.#hooks[this.#position++]) {
      const isRouted = this.#hop !== undefined && hook.phase === 'route';
      const isMeant = !hook.signedIn || sessionOf(this.#input).user !== undefined;
      if (hook.phase !== this.#accepted && !isRouted && isMeant) return hook;
    }
    return undefined;
  }

  /** What the verdict decides; undefined when the next hook is asked. */
  #follow(hook: RegisteredHook<S>, verdict: Verdict): Decision | undefined {
    this.#ground.trace?.(hook, verdict);
    this.#ground.observe?.({
      plugin: hook.plugin,
      stage: this.#stage,
      phase: hook.phase,
      input: this.#input,
      verdict,
    });
    if (this.#ground.shadowed?.has(hook.plugin) === true) return this.#shadow(hook, verdict);
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
        this.#ground.log.info({ ...this.#subject(hook), reason: verdict.reason }, 'discarded by a hook');
        return { outcome: 'discard', reason: verdict.reason };
      case 'hold':
        return this.#hold(hook, verdict.reason);
      case 'route':
        return this.#route(hook, verdict.hop, verdict.reply);
      case 'change':
        this.#input = this.#ground.change?.(verdict.changes, this.#input) ?? this.#input;
        break;
    }
    return undefined;
  }

  /** Written down, and not followed. */
  #shadow(hook: RegisteredHook<S>, verdict: Verdict): undefined {
    if (verdict.kind === 'next' || this.#ground.trace !== undefined) return;
    hook.shadow();
    const { postern, ...said } = verdict;
    void postern;
    this.#ground.log.info({ ...this.#subject(hook), verdict: said }, 'a shadowed hook would have decided');
  }

  /** The first one counts. */
  #route(hook: RegisteredHook<S>, hop: Hop, answer: Reply | undefined): Decision | undefined {
    if (this.#hop !== undefined) return undefined;
    if (!this.#ground.hasTarget(hop.target)) {
      return failure(hook, `no plugin delivers to the target ${JSON.stringify(hop.target)}`, this.#input);
    }
    this.#hop = hop;
    this.#reply = answer;
    return undefined;
  }

  /** Of a recipient: routing ends, and `last` may still object. Of a message: its stage ends. */
  #hold(hook: RegisteredHook<S>, reason: string): Decision | undefined {
    if (!this.#ground.hasTarget(holdTarget)) {
      return failure(hook, 'hold needs a target named hold, and no plugin has one', this.#input);
    }
    this.#ground.log.info({ ...this.#subject(hook), reason }, 'held by a hook');
    this.#hop = { target: holdTarget, destination: '', data: { reason, plugin: hook.plugin } };
    this.#reply = undefined;
    return this.#stage === 'rcptTo' ? undefined : { outcome: 'pass', hop: this.#hop };
  }

  /** Nobody objected. That is a yes, except where somebody has to say yes. */
  #undisputed(): Decision {
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
    const transaction = 'transaction' in this.#input ? this.#input.transaction.id : undefined;
    return { plugin: hook.plugin, stage: this.#stage, transaction };
  }
}

const sessionOf = (input: StageInput[Stage]): SmtpSession =>
  'session' in input ? input.session : input.transaction.session;

function refusal({ code, status, text }: Extract<Verdict, { kind: 'reject' | 'defer' }>, plugin: string): Decision {
  return { outcome: 'refuse', reply: reply(code, status, text), plugin };
}

function failure<S extends Stage>(hook: RegisteredHook<S>, why: string, input: StageInput[S]): Decision {
  hook.fail(why, input);
  return { outcome: 'refuse', reply: replies.fault, plugin: hook.plugin };
}
