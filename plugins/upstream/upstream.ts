import type { RecipientOutcome } from '../../core/pipeline/delivery-target.js';
import type { Recipient, SmtpSession } from '../../core/pipeline/transaction.js';
import {
  clientFailure,
  type ClientFailure,
  type ClientStep,
  isClientFailure,
  timeoutFailure,
} from '../../core/smtp/client/failure.js';
import {
  failedResult,
  type MessageResult,
  type OutgoingMessage,
  type SendOptions,
} from '../../core/smtp/client/message.js';
import type { PooledSession } from '../../core/smtp/client/pool.js';
import type { ClientSession } from '../../core/smtp/client/session.js';
import { asciiReplyText, maxReplyText, type Reply } from '../../core/smtp/protocol/replies.js';
import type { UpstreamSettings } from './settings.js';
import { type BreakerState, brokenKinds, type Call, type UpstreamDeps, UpstreamHost } from './upstream-host.js';

/** A connection on which the server has answered MAIL. */
export interface Begun {
  readonly lease: PooledSession;
  readonly reply: Reply;
  /** Must be called with the result of the message, if one was sent. */
  readonly host: Pick<UpstreamHost, 'heard'>;
}

/** State of one server. */
export interface HostState {
  readonly host: string;
  readonly port: number;
  readonly state: BreakerState;
  /** Failure of the last call, if it failed. */
  readonly why: string | null;
  /** Seconds until the next trial; 0 for immediately. */
  readonly retryAfter: number;
}

type Use<T> = (lease: PooledSession, host: UpstreamHost) => Promise<T>;

/** Maximum dead idle connections to skip in a row. */
const maxStale = 20;

/** Servers for the same mail; the first that answers is used. */
export class Upstream {
  readonly settings: UpstreamSettings;
  readonly #hosts: readonly UpstreamHost[];
  readonly #clock: UpstreamDeps['clock'];

  constructor(settings: UpstreamSettings, deps: UpstreamDeps) {
    this.settings = settings;
    this.#clock = deps.clock;
    this.#hosts = settings.hosts.map((written) => new UpstreamHost(written, settings, deps));
  }

  /** Monotonic milliseconds. */
  now(): number {
    return this.#clock.monotonic();
  }

  /**
   * Sends MAIL to the first server that answers. Rejects with a `ClientFailure` when none does, or when the message
   * cannot be sent there (`capability`).
   */
  begin(mail: (session: ClientSession) => Promise<Reply>, call: Call): Promise<Begun> {
    return this.#first(call, async (lease, host) => {
      try {
        const reply = await mail(lease.session);
        host.breaker.succeeded('envelope');
        return { lease, reply, host };
      } catch (error) {
        lease.release();
        throw error;
      }
    });
  }

  /**
   * Sends a complete message. Never rejects with a `ClientFailure`; a server that disconnects before it answers for the
   * message is replaced. The signal only aborts the search for a server: a running dialogue finishes.
   */
  async send(message: OutgoingMessage, call: Call, options?: SendOptions): Promise<MessageResult> {
    try {
      return await this.#first(call, async (lease, host) => {
        const result = await lease.session.send(message, options).finally(() => lease.release());
        const isUntouched = result.bytes === 0 && result.recipients.every(({ outcome }) => outcome === 'failed');
        if (result.failure !== undefined && isUntouched && isOfConnection(result.failure)) throw result.failure;
        if (result.failure === undefined && result.bytes === 0) host.breaker.succeeded('envelope');
        else host.heard(result.failure);
        return result;
      });
    } catch (error) {
      if (!isClientFailure(error)) throw error;
      return failedResult(message, error, undefined);
    }
  }

  states(): readonly HostState[] {
    return this.#hosts.map(({ name, port, breaker }) => ({
      host: name,
      port,
      state: breaker.state,
      why: breaker.failure?.text ?? null,
      retryAfter: Math.ceil(breaker.waitMs / 1000),
    }));
  }

  /** Closes the connections of a client that is gone. */
  forget(session: SmtpSession): void {
    for (const host of this.#hosts) host.forget(session);
  }

  /** Closes idle connections now, those in use on return. */
  async close(): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.close()));
  }

  async #first<T>(call: Call, use: Use<T>): Promise<T> {
    let failure: ClientFailure | undefined;
    for (const host of this.#hosts) {
      if (!host.breaker.admits()) {
        failure ??= host.breaker.failure;
        continue;
      }
      try {
        return await this.#at(host, call, use);
      } catch (error) {
        if (!isClientFailure(error) || error.kind === 'capability' || call.signal.aborted) throw error;
        failure = error;
      }
    }
    throw failure ?? noAnswer();
  }

  /** Replaces an idle connection that has died. */
  async #at<T>(host: UpstreamHost, call: Call, use: Use<T>): Promise<T> {
    for (let stale = 0; ; stale += 1) {
      const lease = await host.lease(call);
      try {
        return await use(lease, host);
      } catch (error) {
        if (!isClientFailure(error)) throw error;
        if (error.kind === 'capability') host.breaker.succeeded('envelope');
        if (lease.reused && stale < maxStale && diedUnseen(error)) continue;
        // The full timeout was used up by the server.
        const failure = call.signal.aborted && error.kind === 'local' ? timeoutFailure(error.step) : error;
        if (brokenKinds.has(failure.kind)) host.breaker.failed(failure);
        throw failure;
      }
    }
  }
}

/** Another server may accept the message: this one has neither accepted nor refused it. */
function isOfConnection({ kind, code, afterDot }: ClientFailure): boolean {
  return !afterDot && (brokenKinds.has(kind) || (kind === 'reply' && code === 421));
}

function diedUnseen({ kind, step, code }: ClientFailure): boolean {
  return step === 'mail' && (kind === 'closed' || (kind === 'reply' && code === 421));
}

const noAnswer = (): ClientFailure =>
  clientFailure({ kind: 'connect', step: 'connect', code: 451, status: '4.4.1', text: 'No server answers' });

/** A refusal for the client, in one line. */
interface Refusal {
  readonly code: number;
  readonly status: string;
  readonly text: string;
}

/**
 * The server's reply, or why there is none, for the client: code, status and text unchanged. A 421 concerns the
 * connection to that server, so it becomes 451.
 */
export function refusalOf(answer: Reply | ClientFailure): Refusal {
  const { code, status } = answer;
  const isNo = code >= 400 && code <= 599 && code !== 421 && isAboutMail(answer);
  const said = isNo ? code : 451;
  const digit = Math.floor(said / 100);
  return {
    code: said,
    status: status?.startsWith(`${digit}.`) === true ? status : `${digit}.${isNo ? '0.0' : '4.2'}`,
    text: lineOf(isClientFailure(answer) ? answer.text : answer.lines.join(' ')),
  };
}

/**
 * False for refusals of this server or faults of its configuration: the sender shall try again. A 5yz that is not
 * permanent (a plain 552 to RCPT after accepted recipients) is not final for a separate message either.
 */
function isAboutMail(answer: Reply | ClientFailure): boolean {
  if (!isClientFailure(answer)) return true;
  const { kind, step, code, permanent } = answer;
  if (kind === 'capability') return permanent;
  return kind === 'reply' && envelopeSteps.has(step) && (code < 500 || permanent);
}

const envelopeSteps: ReadonlySet<ClientStep> = new Set(['mail', 'rcpt', 'data', 'body', 'final']);

/** Of a whole transaction: the same for each recipient. */
export function outcomesOf(
  recipients: readonly Recipient[],
  answer: Reply | ClientFailure,
): readonly RecipientOutcome[] {
  return recipients.map((recipient) => outcomeOf(recipient, answer));
}

export function outcomeOf(recipient: Recipient, answer: Reply | ClientFailure): RecipientOutcome {
  if (!isClientFailure(answer) && answer.code < 300) return { recipient, outcome: 'delivered', reply: answer };
  const refusal = refusalOf(answer);
  return { recipient, outcome: refusal.code < 500 ? 'deferred' : 'refused', ...refusal };
}

/** One printable line; a server's text may be empty. */
function lineOf(text: string): string {
  const clean = asciiReplyText(text.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').trim()).slice(0, maxReplyText);
  return clean === '' ? 'No reason given' : clean;
}
