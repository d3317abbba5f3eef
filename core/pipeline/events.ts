import type { Log } from '../log/log.js';
import type { Address } from '../mime/address.js';
import { type Mark, markOf, runAs } from '../watchdog/running-code.js';
import type { OutgoingAttempt } from './hook.js';
import type { Recipient, SmtpSession, Transaction } from './transaction.js';
import type { Stage } from './verdict.js';

/**
 * Outcome of one recipient of a queued message: after a delivery attempt, or when an operator or its age ended it.
 * Emitted once, when it is durable, and not repeated after a crash. Times are milliseconds since the epoch.
 */
export interface Outcome {
  /** Id of the queue entry: the id of its transaction, for some followed by `-` and a word. */
  readonly id: string;
  /** Null for the null reverse-path `<>`. */
  readonly reversePath: Address | null;
  readonly recipient: Address;
  /**
   * `deferred` is retried; `held` waits for an operator; the others are final: delivered, refused, expired, or deleted
   * by an operator.
   */
  readonly status: 'delivered' | 'deferred' | 'bounced' | 'expired' | 'held' | 'deleted';
  /** The reply; its host is null for replies of this server. Null without a reply. */
  readonly reply: {
    readonly code: number;
    /** Enhanced status code (RFC 3463). */
    readonly status: string;
    readonly text: string;
    readonly host: string | null;
  } | null;
  /** Reason of `held`. */
  readonly reason?: string;
  /** Number of attempts so far. */
  readonly attempts: number;
  /** For `deferred`; else null. */
  readonly nextAttemptAt: number | null;
  readonly at: number;
  /** `relay` for other servers, else the delivery target of this server. */
  readonly target: string;
  /** ENVID of the sender (RFC 3461 §4.4). */
  readonly envelopeId?: string;
}

/** An attempt of the queue, when its result is durable. Times are milliseconds since the epoch. */
export interface FinishedAttempt {
  /** As the hooks of the stage `attempt` have it. */
  readonly attempt: Omit<OutgoingAttempt, 'open'>;
  /** When it began. */
  readonly at: number;
  /** Duration in milliseconds. */
  readonly ms: number;
  /** One for each recipient that was tried. `deferred` is retried; `held` waits for an operator. */
  readonly results: readonly Pick<Outcome, 'recipient' | 'status' | 'reply' | 'nextAttemptAt'>[];
  /** `name[address]:port` of the last server; null when none was called. */
  readonly host: string | null;
  /** `TLSv1.3`, or null for none. */
  readonly tls: string | null;
  /** The connection was lost after the final dot: the server may have the message, and gets it again. */
  readonly possibleDuplicate: boolean;
}

/** Maximum of unsettled promises of one watcher. Beyond it the watcher misses events, which bounds memory. */
const maxUnsettled = 1000;

interface WatcherContext {
  readonly log: Log;
  /** Of a promise. */
  readonly timeLimitMs: number;
  /** Called with a promise that takes longer. */
  readonly failed: (where: string, why: string) => void;
}

/** A subscriber to an event. Whatever it throws, rejects or misses is logged and affects no one else. */
export class RegisteredWatcher<E extends WatchedEvent> {
  readonly #plugin: string;
  readonly #event: E;
  readonly #watcher: Watcher<E>;
  readonly #context: WatcherContext;
  readonly #mark: Mark;
  #unsettled = 0;
  #missed = 0;

  constructor(plugin: string, event: E, watcher: Watcher<E>, context: WatcherContext) {
    this.#plugin = plugin;
    this.#event = event;
    this.#watcher = watcher;
    this.#context = context;
    this.#mark = markOf(plugin, `watcher of ${event}`);
  }

  notify(data: WatchedEvents[E]): void {
    if (this.#unsettled >= maxUnsettled) {
      this.#miss();
      return;
    }
    try {
      const result: unknown = runAs(this.#mark, () => this.#watcher(data));
      if (result instanceof Promise) void this.#follow(result, data);
    } catch (error) {
      this.#failed(error, data);
    }
  }

  /** Nothing waits for the result; one that takes too long is a fault, and still counts as unsettled. */
  async #follow(result: Promise<unknown>, data: WatchedEvents[E]): Promise<void> {
    const { timeLimitMs, failed } = this.#context;
    this.#unsettled += 1;
    const timer = setTimeout(() => {
      const why = `took longer than ${timeLimitMs} ms`;
      failed(`watcher ${this.#event}`, why);
      this.#context.log.error({ ...this.#place(data), reason: why }, 'a watcher failed');
    }, timeLimitMs).unref();
    try {
      await result;
    } catch (error) {
      this.#failed(error, data);
    }
    clearTimeout(timer);
    this.#unsettled -= 1;
    if (this.#missed > 0 && this.#unsettled <= maxUnsettled / 2) this.#resume();
  }

  #miss(): void {
    this.#missed += 1;
    if (this.#missed > 1) return;
    const about = { plugin: this.#plugin, event: this.#event, unsettled: this.#unsettled };
    this.#context.log.warn(about, 'a watcher is too slow: it misses events');
  }

  #resume(): void {
    const about = { plugin: this.#plugin, event: this.#event, missed: this.#missed };
    this.#context.log.warn(about, 'a watcher that was too slow gets events again');
    this.#missed = 0;
  }

  #failed(error: unknown, data: WatchedEvents[E]): void {
    this.#context.log.error({ ...this.#place(data), err: error }, 'a watcher failed');
  }

  #place(data: WatchedEvents[WatchedEvent]): Readonly<Record<string, unknown>> {
    const about = { plugin: this.#plugin, event: this.#event };
    if ('attempt' in data) return { ...about, uid: data.attempt.id };
    if ('id' in data) return { ...about, uid: data.id };
    if ('transaction' in data) return { ...about, transaction: data.transaction.id };
    return { ...about, session: data.session.id };
  }
}

export type WatchersByEvent = { readonly [E in WatchedEvent]: readonly RegisteredWatcher<E>[] };

/** Calls the watchers of an event after everything already queued in the event loop. */
export function emit<E extends WatchedEvent>(watchers: readonly RegisteredWatcher<E>[], data: WatchedEvents[E]): void {
  if (watchers.length === 0) return;
  later(() => {
    for (const watcher of watchers) watcher.notify(data);
  });
}

/** Events of the next turn of the event loop; many share it. */
let tasks: (() => void)[] = [];

function later(task: () => void): void {
  if (tasks.push(task) === 1) setImmediate(emitAll);
}

function emitAll(): void {
  const told = tasks;
  tasks = [];
  for (const task of told) task();
}

/** Events for watchers. They come after the fact and cannot slow the session. */
export interface WatchedEvents {
  /** A message got its 250. */
  readonly accepted: {
    /** As received: its recipients are those of RCPT. */
    readonly transaction: Transaction;
    /** As hooks left them, each with the target that has the message, or discarded. */
    readonly recipients: readonly Recipient[];
    readonly size: number;
    readonly ms: number;
    /** With brackets; undefined when the header has none. */
    readonly messageId?: string | undefined;
  };
  /** A command or a message was refused by a decision. */
  readonly rejected: {
    readonly session: SmtpSession;
    readonly stage: Stage;
    readonly code: number;
    readonly status: string;
    readonly text: string;
    readonly reversePath?: Address | null;
    readonly recipient?: Address;
  };
  readonly delivered: { readonly transaction: Transaction; readonly recipient: Recipient; readonly target: string };
  readonly deferred: { readonly transaction: Transaction; readonly recipient: Recipient; readonly reason: string };
  readonly bounced: { readonly transaction: Transaction; readonly recipient: Recipient; readonly reason: string };
  /** Result of an attempt, or of waiting, for each recipient of a queued message. */
  readonly outcome: Outcome;
  /** An attempt of the queue is over, also one that a hook of `attempt` refused. */
  readonly attempted: FinishedAttempt;
  /** A transaction ended: answered, reset by RSET or EHLO, or the client left. Once for each. */
  readonly ended: { readonly transaction: Transaction };
  readonly closed: { readonly session: SmtpSession; readonly ms: number; readonly messages: number };
}

export type WatchedEvent = keyof WatchedEvents;

/** May be asynchronous. What it returns is ignored. */
export type Watcher<E extends WatchedEvent> = (event: WatchedEvents[E]) => unknown;
