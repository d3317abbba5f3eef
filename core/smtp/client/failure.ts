import type { Reply } from '../protocol/replies.js';

/** Where in the session the failure occurred. `body` is the text after 354, `final` the reply to the final dot. */
export type ClientStep =
  | 'connect'
  | 'greeting'
  | 'hello'
  | 'starttls'
  | 'auth'
  | 'xclient'
  | 'mail'
  | 'rcpt'
  | 'data'
  | 'body'
  | 'final'
  | 'rset'
  | 'noop'
  | 'quit';

/**
 * Kind of failure: `reply` the server answered 4yz or 5yz; `connect` no connection; `timeout` a deadline passed;
 * `protocol` bytes that are no SMTP, or an unexpected reply; `tls` no TLS or an invalid certificate; `closed` the
 * connection ended; `capability` the server lacks an extension that the message needs; `withdrawn` the caller took the
 * message back before its end; `local` our own fault: the caller's stream, an abort, an invalid address.
 */
export type FailureKind =
  'reply' | 'connect' | 'timeout' | 'protocol' | 'tls' | 'closed' | 'capability' | 'withdrawn' | 'local';

/** A branded `Error`; test with `isClientFailure`. `code`, `status` and `text` may be used in a DSN. */
export interface ClientFailure extends Error {
  readonly postern: 'client-failure';
  readonly kind: FailureKind;
  readonly step: ClientStep;
  /** The server's reply, if it sent a valid one. */
  readonly reply?: Reply;
  /** SMTP reply code: the server's, else one that describes the failure. */
  readonly code: number;
  /** Enhanced status code (RFC 3463): the server's, else one that describes the failure. */
  readonly status: string;
  /** One line: the server's text, or a sentence. */
  readonly text: string;
  /**
   * True when retrying this server is useless: only for 5yz and a missing capability. Another server of the domain may
   * still accept.
   */
  readonly permanent: boolean;
  /** True when the final dot was sent and its reply is unknown: the server may have the message. */
  readonly afterDot: boolean;
}

export interface FailureDetails {
  readonly kind: FailureKind;
  readonly step: ClientStep;
  readonly code: number;
  readonly status: string;
  readonly text: string;
  readonly reply?: Reply;
  readonly permanent?: boolean;
  readonly afterDot?: boolean;
  /** For the log. */
  readonly cause?: unknown;
}

/** Temporary and before the final dot, unless the details say otherwise. */
export function clientFailure(details: FailureDetails): ClientFailure {
  const { kind, step, code, status, text, reply, permanent = false, afterDot = false, cause } = details;
  const error = new Error(`${step}: ${text}`, cause === undefined ? undefined : { cause });
  const fields = { postern: 'client-failure', kind, step, code, status, text, permanent, afterDot } as const;
  return Object.assign(error, { name: 'ClientFailure' }, fields, reply === undefined ? {} : { reply });
}

export function isClientFailure(value: unknown): value is ClientFailure {
  return value instanceof Error && (value as Partial<ClientFailure>).postern === 'client-failure';
}

const temporarySteps: ReadonlySet<ClientStep> = new Set(['starttls', 'auth', 'xclient', 'rset', 'noop', 'quit']);

/**
 * The server answered 4yz or 5yz. A refused AUTH or STARTTLS is a matter of configuration, hence temporary; a plain 552
 * to RCPT means too many recipients (RFC 5321 §4.5.3.1.10).
 */
export function refusal(step: ClientStep, reply: Reply): ClientFailure {
  const { code, lines } = reply;
  const tooMany = step === 'rcpt' && code === 552 && (reply.status === null || reply.status.startsWith('5.5.3'));
  const permanent = code >= 500 && !temporarySteps.has(step) && !tooMany;
  const status = reply.status ?? (code >= 500 ? '5.0.0' : '4.0.0');
  return clientFailure({
    kind: 'reply',
    step,
    code,
    status,
    text: lines.join(' ') || 'No reason given',
    reply,
    permanent,
  });
}

export function timeoutFailure(step: ClientStep): ClientFailure {
  const status = step === 'connect' ? '4.4.1' : '4.4.2';
  const text = step === 'body' ? 'The message was not taken in time' : 'The server did not answer in time';
  return clientFailure({ kind: 'timeout', step, code: 451, status, text, afterDot: step === 'final' });
}

/** @param text what is wrong with what came */
export function protocolFailure(step: ClientStep, text: string): ClientFailure {
  return clientFailure({ kind: 'protocol', step, code: 451, status: '4.5.0', text, afterDot: step === 'final' });
}

export function closedFailure(step: ClientStep, cause?: unknown): ClientFailure {
  const text = 'The server closed the connection';
  return clientFailure({ kind: 'closed', step, code: 451, status: '4.4.2', text, afterDot: step === 'final', cause });
}

/** @param text what is wrong on our side */
export function localFailure(step: ClientStep, text: string, cause?: unknown): ClientFailure {
  return clientFailure({ kind: 'local', step, code: 451, status: '4.3.0', text, afterDot: step === 'final', cause });
}

/** The message was broken off before its end, so that the server has none of it. */
export function withdrawnFailure(): ClientFailure {
  const text = 'The message was taken back before its end';
  return clientFailure({ kind: 'withdrawn', step: 'body', code: 451, status: '4.3.0', text });
}

/** The same, where the server may have had the whole message before. */
export function afterMessage(failure: ClientFailure): ClientFailure {
  const { kind, code, status, text, cause } = failure;
  return clientFailure({ kind, step: 'final', code, status, text, afterDot: true, cause });
}

/**
 * The connection died before the server answered anything: closed, or with the 421 of a server that left while it was
 * idle.
 */
export function diedIdle(failure: ClientFailure | undefined): boolean {
  if (failure === undefined || failure.step !== 'mail') return false;
  return failure.kind === 'closed' || (failure.kind === 'reply' && failure.code === 421);
}

/** Syntax, unknown command or parameter, wrong order: no answer to a message. */
export const isUnknownCommand = ({ code }: Reply): boolean => code >= 500 && code <= 504;

/** The server offers BDAT and does not know it: it has not taken the message, and may have read it as commands. */
export function chunkRefused({ code }: Reply): ClientFailure {
  return protocolFailure('data', `The server offers BDAT and answers ${code} to it`);
}

/** True for failures after the envelope. */
export function isAtMessage({ step }: ClientFailure): boolean {
  return messageSteps.has(step);
}

const messageSteps: ReadonlySet<ClientStep> = new Set(['data', 'body', 'final']);
