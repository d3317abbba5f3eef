import type { Log } from '../log/log.js';
import type { Address } from '../mime/address.js';
import { type Mark, markOf, runAs } from '../watchdog/running-code.js';
import type { Recipient, SmtpSession, Transaction } from './transaction.js';
import type { Stage } from './verdict.js';

/**
 * What became of one recipient of a message that waits in a queue: behind an attempt to deliver it, or when somebody or its age has
 * ended it. Told when the queue has it on disk, once, and never again after a crash. Times are milliseconds since the epoch.
 */
export interface Outcome {
  /** Of the queue entry: the id of the transaction that it was accepted in, for some followed by `-` and a word. */
  readonly id: string;
  /** Null for the null reverse-path `<>`. */
  readonly reversePath: Address | null;
  readonly recipient: Address;
  /**
   * `deferred` is tried again; `held` waits for an operator; the others are the end: taken, refused, too old, or deleted by an
   * operator.
   */
  readonly status: 'delivered' | 'deferred' | 'bounced' | 'expired' | 'held' | 'deleted';
  /** What was said; its host is null for what this server says itself. Null where nobody has said anything. */
  readonly reply: {
    readonly code: number;
    /** Enhanced status code (RFC 3463). */
    readonly status: string;
    readonly text: string;
    readonly host: string | null;
  } | null;
  /** Of `held`. */
  readonly reason?: string;
  /** How often he was tried until now. */
  readonly attempts: number;
  /** Of `deferred`; null else. */
  readonly nextAttemptAt: number | null;
  readonly at: number;
  /** `relay` for other servers, else the delivery target of this server that the queue brings him to. */
  readonly target: string;
  /** ENVID of the sender (RFC 3461 §4.4). */
  readonly envelopeId?: string;
}

/** So many promises of one watcher may be unsettled. While there are as many it is told nothing: memory is bounded. */
const mostUnsettled = 1000;

/** Somebody who is told of an event. What it throws, rejects or misses is logged, and is nobody else's trouble. */
export class RegisteredWatcher<E extends WatchedEvent> {
  readonly #plugin: string;
  readonly #event: E;
  readonly #watcher: Watcher<E>;
  readonly #log: Log;
  readonly #mark: Mark;
  #unsettled = 0;
  #missed = 0;

  constructor(plugin: string, event: E, watcher: Watcher<E>, log: Log) {
    this.#plugin = plugin;
    this.#event = event;
    this.#watcher = watcher;
    this.#log = log;
    this.#mark = markOf(plugin, `watcher of ${event}`);
  }

  tell(data: WatchedEvents[E]): void {
    if (this.#unsettled >= mostUnsettled) {
      this.#miss();
      return;
    }
    try {
      // A watcher may be an async function all the same.
      const result: unknown = runAs(this.#mark, () => this.#watcher(data));
      if (result instanceof Promise) void this.#follow(result);
    } catch (error) {
      this.#failed(error);
    }
  }

  async #follow(result: Promise<unknown>): Promise<void> {
    this.#unsettled += 1;
    try {
      await result;
    } catch (error) {
      this.#failed(error);
    }
    this.#unsettled -= 1;
    if (this.#missed > 0 && this.#unsettled <= mostUnsettled / 2) this.#resume();
  }

  #miss(): void {
    this.#missed += 1;
    if (this.#missed > 1) return;
    const about = { plugin: this.#plugin, event: this.#event, unsettled: this.#unsettled };
    this.#log.warn(about, 'a watcher is too slow: it is not told of what happens meanwhile');
  }

  #resume(): void {
    const about = { plugin: this.#plugin, event: this.#event, missed: this.#missed };
    this.#log.warn(about, 'a watcher that was too slow is told again');
    this.#missed = 0;
  }

  #failed(error: unknown): void {
    this.#log.error({ plugin: this.#plugin, event: this.#event, err: error }, 'a watcher failed');
  }
}

export type WatchersByEvent = { readonly [E in WatchedEvent]: readonly RegisteredWatcher<E>[] };

/** Tells the watchers of an event behind everything that waits now. */
export function tell<E extends WatchedEvent>(watchers: readonly RegisteredWatcher<E>[], data: WatchedEvents[E]): void {
  if (watchers.length === 0) return;
  later(() => {
    for (const watcher of watchers) watcher.tell(data);
  });
}

/** What is to be told in the next turn of the event loop; many events share it. */
let tasks: (() => void)[] = [];

function later(task: () => void): void {
  if (tasks.push(task) === 1) setImmediate(tellAll);
}

function tellAll(): void {
  const told = tasks;
  tasks = [];
  for (const task of told) task();
}

/** What watchers are told, after the fact; they cannot decide and cannot slow the session. */
export interface WatchedEvents {
  /** A message got its 250. */
  readonly accepted: { readonly transaction: Transaction; readonly size: number; readonly ms: number };
  /** A command or a message got 4yz or 5yz by a decision. */
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
  /** Mail that waits in a queue: what came of an attempt, or of waiting, for each recipient. */
  readonly outcome: Outcome;
  /** A transaction that began is over, however it went: answered, RSET, another EHLO, or the client has gone. Once for each. */
  readonly ended: { readonly transaction: Transaction };
  readonly closed: { readonly session: SmtpSession; readonly ms: number; readonly messages: number };
}

export type WatchedEvent = keyof WatchedEvents;

export type Watcher<E extends WatchedEvent> = (event: WatchedEvents[E]) => void;
