import type { RecipientOutcome } from '../../core/contracts/delivery-target.js';
import type { Recipient, SmtpSession } from '../../core/pipeline/transaction.js';
import {
  clientFailure,
  type ClientFailure,
  type ClientStep,
  isClientFailure,
  timeoutFailure,
} from '../../core/smtp/client/failure.js';
import { failedResult, type MessageResult, type OutgoingMessage } from '../../core/smtp/client/message.js';
import type { Lease } from '../../core/smtp/client/pool.js';
import type { ClientSession } from '../../core/smtp/client/session.js';
import { asciiReplyText, maxReplyText, type Reply } from '../../core/smtp/protocol/replies.js';
import type { UpstreamSettings } from './settings.js';
import { type BreakerState, brokenKinds, type Call, type UpstreamGround, UpstreamHost } from './upstream-host.js';

/** A connection whose server has answered MAIL. */
export interface Begun {
  readonly lease: Lease;
  readonly reply: Reply;
  /** To be told what came of the message, if one was sent. */
  readonly host: Pick<UpstreamHost, 'heard'>;
}

/** How it stands with one server. */
export interface HostState {
  readonly host: string;
  readonly port: number;
  readonly state: BreakerState;
  /** What the last call came to, if it failed. */
  readonly why: string | null;
  /** Seconds until it is tried again; 0 for at once. */
  readonly retryAfter: number;
}

type Use<T> = (lease: Lease, host: UpstreamHost) => Promise<T>;

/** Kept connections that may turn out to be dead one after the other. */
const maxStale = 20;

/** Servers that take the same mail, the first that answers is used. */
export class Upstream {
  readonly settings: UpstreamSettings;
  readonly #hosts: readonly UpstreamHost[];
  readonly #clock: UpstreamGround['clock'];

  constructor(settings: UpstreamSettings, ground: UpstreamGround) {
    this.settings = settings;
    this.#clock = ground.clock;
    this.#hosts = settings.hosts.map((written) => new UpstreamHost(written, settings, ground));
  }

  /** Monotonic, in milliseconds. */
  now(): number {
    return this.#clock.monotonic();
  }

  /**
   * Says MAIL to the first server that answers it. Rejects with a `ClientFailure` when none does, or when the message cannot
   * go there (`capability`).
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
   * A whole message. Never rejects with a `ClientFailure`; a server that goes before it has said anything of the message is replaced.
   * The signal of the call ends the search for a server alone: what has begun comes to its end.
   */
  async send(message: OutgoingMessage, call: Call): Promise<MessageResult> {
    try {
      return await this.#first(call, async (lease, host) => {
        const result = await lease.session.send(message).finally(() => lease.release());
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

  /** The client is gone, and the connections that were its own with it. */
  forget(session: SmtpSession): void {
    for (const host of this.#hosts) host.forget(session);
  }

  /** Kept connections are closed now, those in use when they come back. */
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

  /** A kept connection that has died unseen is replaced. */
  async #at<T>(host: UpstreamHost, call: Call, use: Use<T>): Promise<T> {
    for (let stale = 0; ; stale += 1) {
      const lease = await host.lease(call);
      try {
        return await use(lease, host);
      } catch (error) {
        if (!isClientFailure(error)) throw error;
        if (error.kind === 'capability') host.breaker.succeeded('envelope');
        if (lease.reused && stale < maxStale && diedUnseen(error)) continue;
        // Who has waited for all his time was kept waiting by the server.
        const failure = call.signal.aborted && error.kind === 'local' ? timeoutFailure(error.step) : error;
        if (brokenKinds.has(failure.kind)) host.breaker.failed(failure);
        throw failure;
      }
    }
  }
}

/** Another server may take the message: this one has not judged it, and does not have it. */
function isOfConnection({ kind, code, afterDot }: ClientFailure): boolean {
  return !afterDot && (brokenKinds.has(kind) || (kind === 'reply' && code === 421));
}

function diedUnseen({ kind, step, code }: ClientFailure): boolean {
  return step === 'mail' && (kind === 'closed' || (kind === 'reply' && code === 421));
}

const noAnswer = (): ClientFailure =>
  clientFailure({ kind: 'connect', step: 'connect', code: 451, status: '4.4.1', text: 'No server answers' });

/** A no as the client gets it, in one line. */
interface Refusal {
  readonly code: number;
  readonly status: string;
  readonly text: string;
}

/**
 * What a server has said, or why it said nothing, in words for the client: code, status and text as they came. A 421 is about
 * the connection to that server, not about the client's: it becomes 451.
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
 * False for what a server has against us, or what comes of our own configuration: the sender shall try again. A 5yz that is
 * not meant for good (a plain 552 to RCPT, behind which others have been accepted) is none to a message of its own either.
 */
function isAboutMail(answer: Reply | ClientFailure): boolean {
  if (!isClientFailure(answer)) return true;
  const { kind, step, code, permanent } = answer;
  if (kind === 'capability') return permanent;
  return kind === 'reply' && envelopeSteps.has(step) && (code < 500 || permanent);
}

const envelopeSteps: ReadonlySet<ClientStep> = new Set(['mail', 'rcpt', 'data', 'body', 'final']);

/** Of a whole transaction: each recipient gets the same. */
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

/** One line that can be printed; a server may say nothing at all. */
function lineOf(text: string): string {
  const clean = asciiReplyText(text.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').trim()).slice(0, maxReplyText);
  return clean === '' ? 'No reason given' : clean;
}
