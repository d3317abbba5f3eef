import { usageText } from './text/columns.js';

/**
 * The only error that a client may see. Any other error is a local fault: over HTTP a 500 with nothing but its request
 * id, over SMTP `451 4.3.0`.
 *
 * A problem is branded data, recognized by `isProblem`, never by `instanceof`.
 */
interface ProblemClass {
  readonly title: string;
  /** HTTP status (RFC 9110 §15). */
  readonly http: number;
  /** SMTP reply code and enhanced status code (RFC 5321 §4.2, RFC 3463). */
  readonly smtp: readonly [code: number, status: string];
}

/** All problems. */
export const problems = {
  'bad-request': { title: 'Bad request', http: 400, smtp: [501, '5.5.4'] },
  unauthorized: { title: 'Sign in first', http: 401, smtp: [530, '5.7.0'] },
  forbidden: { title: 'Not allowed', http: 403, smtp: [550, '5.7.1'] },
  'cross-site': { title: 'Request from another site refused', http: 403, smtp: [550, '5.7.1'] },
  'not-found': { title: 'Not found', http: 404, smtp: [550, '5.1.1'] },
  'method-not-allowed': { title: 'Method not allowed', http: 405, smtp: [502, '5.5.1'] },
  'not-acceptable': { title: 'No such representation', http: 406, smtp: [504, '5.5.4'] },
  timeout: { title: 'The request took too long', http: 408, smtp: [421, '4.4.2'] },
  conflict: { title: 'Conflict', http: 409, smtp: [451, '4.3.0'] },
  'precondition-failed': { title: 'Changed by someone else', http: 412, smtp: [451, '4.3.0'] },
  'too-large': { title: 'Too large', http: 413, smtp: [552, '5.3.4'] },
  'uri-too-long': { title: 'Address too long', http: 414, smtp: [501, '5.5.4'] },
  'unsupported-media-type': { title: 'Media type not supported', http: 415, smtp: [554, '5.6.1'] },
  'range-not-satisfiable': { title: 'Range not satisfiable', http: 416, smtp: [501, '5.5.4'] },
  misdirected: { title: 'This server does not answer for that host', http: 421, smtp: [550, '5.7.1'] },
  invalid: { title: 'Invalid content', http: 422, smtp: [553, '5.1.3'] },
  'too-many-requests': { title: 'Too many requests', http: 429, smtp: [421, '4.7.0'] },
  internal: { title: 'Internal error', http: 500, smtp: [451, '4.3.0'] },
  unavailable: { title: 'Not available now', http: 503, smtp: [451, '4.3.2'] },
  'session-timeout': { title: 'The session took too long', http: 504, smtp: [451, '4.4.2'] },
  'storage-full': { title: 'No space left', http: 507, smtp: [452, '4.3.1'] },
  'mailbox-full': { title: 'The mailbox is full', http: 507, smtp: [452, '4.2.2'] },
} as const satisfies Record<string, ProblemClass>;

export type ProblemName = keyof typeof problems;

/** One invalid part of the input. `pointer` is a JSON pointer (RFC 6901) into the body, or the name of a parameter. */
export interface InvalidPlace {
  readonly pointer: string;
  readonly message: string;
}

/** A page of this server, by its path. */
export interface PageLink {
  readonly href: string;
  readonly title: string;
}

/** What a mutation touched, as its endpoint names it. Never a secret. */
export interface AuditNote {
  readonly action: string;
  readonly selector?: unknown;
  readonly counts?: Readonly<Record<string, number>>;
}

export interface ProblemDetails {
  /** A sentence for the client. Never a path, a stack or an operating system message. */
  readonly detail?: string;
  readonly errors?: readonly InvalidPlace[];
  /** Header fields of the HTTP response: `WWW-Authenticate`, `Retry-After`, `Allow`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Pages that the client may have meant. */
  readonly instead?: readonly PageLink[];
  /** For the audit log: what was refused, where the sentence says more than the status. */
  readonly audit?: AuditNote;
  /** For the log only. */
  readonly cause?: unknown;
}

export interface Problem extends Error {
  readonly postern: 'problem';
  readonly problem: ProblemName;
  readonly details: ProblemDetails;
}

/** Makes a problem: `throw problem('mailbox-full', {cause})`. */
export function problem(name: ProblemName, details: ProblemDetails | string = {}): Problem {
  const given = typeof details === 'string' ? { detail: details } : details;
  const error = new Error(given.detail ?? problems[name].title, { cause: given.cause });
  return Object.assign(error, { name: 'Problem', postern: 'problem', problem: name, details: given } as const);
}

export function isProblem(value: unknown): value is Problem {
  return value instanceof Error && (value as Partial<Problem>).postern === 'problem';
}

export function classOf(value: Problem): ProblemClass {
  return problems[value.problem] ?? problems.internal;
}

/** Why the server cannot start or a command cannot run: a sentence that says what to do. Shown without a stack. */
export interface StartError extends Error {
  readonly postern: 'start-error';
  readonly exitStatus?: 2;
}

export function startError(sentence: string, cause?: unknown): StartError {
  return Object.assign(new Error(sentence, { cause }), { name: 'StartError', postern: 'start-error' } as const);
}

/** A start error about a wrong command line: exit status 2. An array holds the lines of a correct one. */
export function usageError(told: string | readonly string[], cause?: unknown): StartError {
  const sentence = typeof told === 'string' ? told : usageText(told);
  return Object.assign(startError(sentence, cause), { exitStatus: 2 } as const);
}

/** Exit status of a command that failed with that error. */
export const exitStatusOf = (error: unknown): 1 | 2 => (isStartError(error) ? (error.exitStatus ?? 1) : 1);

export function isStartError(value: unknown): value is StartError {
  return value instanceof Error && (value as Partial<StartError>).postern === 'start-error';
}

/** The sentences of a problem or start error; the stack of any other error, which is a bug. */
export function sentenceOf(error: unknown): string {
  if (isProblem(error))
    return [...new Set([error.message, ...(error.details.errors ?? []).map(({ message }) => message)])].join('\n');
  if (isStartError(error)) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
