import type { Address } from '../mime/address.js';
import { targets } from '../contracts/targets.js';
import { asciiReplyText, isReplyText, maxReplyText, type Reply } from '../smtp/protocol/replies.js';

/** Stages of a session, in order. */
export const stages = ['connect', 'ehlo', 'auth', 'mailFrom', 'rcptTo', 'message', 'deliver', 'attempt'] as const;
export type Stage = (typeof stages)[number];

/**
 * Where a recipient goes: a delivery target by name, and a destination in it. Recipients of one destination share a
 * delivery.
 */
export interface Hop {
  /** Name given to `smtp.deliverTo`: `mailbox`, `lmtp`, `proxy`, `relay`. */
  readonly target: string;
  readonly destination: string;
  /** Data for the target. */
  readonly data?: unknown;
}

/** The identity of an authenticated session. */
export interface AuthenticatedUser {
  /** `local@domain` of the user. */
  readonly username: string;
}

export type Change =
  | { readonly change: 'add-header'; readonly name: string; readonly value: string }
  | { readonly change: 'remove-header'; readonly name: string }
  /**
   * Replaces the body: `write` is given what follows the empty line after the header, and yields what takes its place.
   * Header fields that describe it (MIME) are changed beside it. Within the time limit of the hook; at most the
   * maximum size of a message and a megabyte. Line ends become CRLF.
   */
  | {
      readonly change: 'body';
      readonly write: (body: AsyncIterable<Buffer>) => AsyncIterable<Uint8Array | string>;
    }
  /** Another reverse-path; null for `<>`. */
  | { readonly change: 'sender'; readonly address: Address | null }
  | { readonly change: 'add-recipient'; readonly address: Address; readonly hop?: Hop }
  | { readonly change: 'remove-recipient'; readonly address: Address };

interface Branded {
  readonly postern: 'verdict';
}

/** Answer of a deciding hook. Anything else counts as a failure: `451 4.3.0`, never "continue". */
export type Verdict = Branded &
  (
    | { readonly kind: 'next' }
    | { readonly kind: 'accept'; readonly user?: AuthenticatedUser }
    | { readonly kind: 'reject'; readonly code: number; readonly status: string; readonly text: string }
    | { readonly kind: 'defer'; readonly code: number; readonly status: string; readonly text: string }
    | { readonly kind: 'discard'; readonly reason: string }
    | { readonly kind: 'hold'; readonly reason: string }
    | { readonly kind: 'route'; readonly hop: Hop; readonly reply?: Reply; readonly queued?: boolean }
    | { readonly kind: 'change'; readonly changes: readonly Change[] }
  );

const NEXT: Verdict = Object.freeze({ postern: 'verdict', kind: 'next' });
const ACCEPT: Verdict = Object.freeze({ postern: 'verdict', kind: 'accept' });

/** No opinion: the next hook decides. */
export const next = (): Verdict => NEXT;
/** Yes; the rest of this phase is skipped. In stage `auth` it names the authenticated user. */
export const accept = (user?: AuthenticatedUser): Verdict =>
  user === undefined ? ACCEPT : { postern: 'verdict', kind: 'accept', user };
/** A permanent no (5yz). `status` is the enhanced status code (RFC 3463), `5.y.z`. */
export const reject = (code: number, status: string, text: string): Verdict => ({
  postern: 'verdict',
  kind: 'reject',
  code,
  status,
  text,
});
/** A temporary no (4yz). `status` is the enhanced status code (RFC 3463), `4.y.z`. */
export const defer = (code: number, status: string, text: string): Verdict => ({
  postern: 'verdict',
  kind: 'defer',
  code,
  status,
  text,
});
/** Accept and store nothing; the reason is logged. Stages `rcptTo`, `message` and `deliver`. */
export const discard = (reason: string): Verdict => ({ postern: 'verdict', kind: 'discard', reason });
/**
 * Accept and keep the message for an operator. Stages `rcptTo`, `message`, `deliver` and `attempt`. Needs a target named `hold`;
 * without one the reply is 4yz.
 */
export const hold = (reason: string): Verdict => ({ postern: 'verdict', kind: 'hold', reason });
/**
 * Routes this recipient to `hop`. Stage `rcptTo`. `reply` (2yz) replaces the usual reply.
 *
 * With `queued` the client gets its 250 once the message is in the queue, which delivers it to the target: it tries
 * again what the target defers, and returns what it refuses. The queue keeps the `data` of the hop as JSON, at most
 * 10,000 characters.
 */
export const route = (
  hop: Hop,
  { reply, queued }: { readonly reply?: Reply; readonly queued?: boolean } = {},
): Verdict => ({
  postern: 'verdict',
  kind: 'route',
  hop,
  ...(reply !== undefined && { reply }),
  ...(queued !== undefined && { queued }),
});
/** Continue with these changes of the message, its sender or its recipients, in their order. Stage `message`. */
export const change = (...changes: readonly Change[]): Verdict => ({ postern: 'verdict', kind: 'change', changes });

function isVerdict(value: unknown): value is Verdict {
  return typeof value === 'object' && value !== null && (value as Partial<Branded>).postern === 'verdict';
}

type Kind = Verdict['kind'];

/** Stages in which each verdict is valid. */
const stagesOf: Readonly<Record<Kind, readonly Stage[]>> = {
  next: stages,
  accept: stages,
  reject: stages,
  defer: stages,
  discard: ['rcptTo', 'message', 'deliver'],
  hold: ['rcptTo', 'message', 'deliver', 'attempt'],
  route: ['rcptTo'],
  change: ['message'],
};

/** The verdict of a hook, or a sentence that says why it is invalid. The value is untrusted. */
export function checkVerdict(value: unknown, stage: Stage): Verdict | string {
  if (value === undefined) return 'it answers nothing; a hook without an opinion ends with return next()';
  if (!isVerdict(value)) return 'the answer is not a verdict';
  if (!Object.hasOwn(stagesOf, value.kind)) return `there is no verdict ${JSON.stringify(value.kind)}`;
  if (!stagesOf[value.kind].includes(stage)) return `${value.kind} means nothing in stage ${stage}`;
  switch (value.kind) {
    case 'next':
      return value;
    case 'accept':
      return stage !== 'auth' || isUser(value.user) ? value : 'accept in stage auth must name a user';
    case 'reject':
      return checkReply(value, 5);
    case 'defer':
      return checkReply(value, 4);
    case 'discard':
    case 'hold':
      return typeof value.reason === 'string' ? value : `${value.kind} must give a reason`;
    case 'route':
      if (!isHop(value.hop)) return 'route must name a hop with target and destination';
      if (value.reply !== undefined && !isYes(value.reply)) return 'the reply of a route must be a 2yz';
      return value.queued === true ? { ...value, hop: queuedHop(value.hop) } : value;
    case 'change':
      break;
  }
  const isList = Array.isArray(value.changes) && value.changes.every(isChange);
  return isList ? value : 'change has an unknown or bad change';
}

type Refusal = Extract<Verdict, { kind: 'reject' | 'defer' }>;

function checkReply(verdict: Refusal, digit: 4 | 5): Refusal | string {
  const { kind, code, status, text } = verdict;
  if (!Number.isInteger(code) || Math.floor(code / 100) !== digit)
    return `${kind} needs a code ${digit}00 to ${digit}99`;
  if (typeof status !== 'string' || !/^\d\.\d{1,3}\.\d{1,3}$/.test(status) || !status.startsWith(`${digit}.`)) {
    return `${kind} needs an enhanced status code ${digit}.y.z`;
  }
  if (!isReplyText(text)) return `${kind} needs one line of printable text, at most ${maxReplyText} characters`;
  return { ...verdict, text: asciiReplyText(text) };
}

function isUser(user: unknown): boolean {
  const username = typeof user === 'object' && user !== null && 'username' in user ? user.username : undefined;
  return typeof username === 'string' && username !== '';
}

function isHop(hop: unknown): hop is Hop {
  if (typeof hop !== 'object' || hop === null) return false;
  const { target, destination } = hop as Partial<Hop>;
  return typeof target === 'string' && typeof destination === 'string';
}

/** The hop of a message that the queue delivers to `hop`. */
export const queuedHop = (hop: Hop): Hop => ({ target: targets.queue, destination: '', data: { hop } });

/** A 2yz for RCPT; its lines are cleaned when they are sent. */
function isYes(reply: unknown): boolean {
  if (typeof reply !== 'object' || reply === null) return false;
  const { code, status, lines } = reply as Partial<Record<string, unknown>>;
  const isStatus = status === null || (typeof status === 'string' && /^2\.\d{1,3}\.\d{1,3}$/.test(status));
  const isText = Array.isArray(lines) && lines.length > 0 && lines.every((line) => typeof line === 'string');
  return Number.isInteger(code) && Math.floor(Number(code) / 100) === 2 && isStatus && isText;
}

function isChange(change: unknown): change is Change {
  if (typeof change !== 'object' || change === null) return false;
  const given = change as Partial<Record<string, unknown>>;
  switch (given['change']) {
    case 'add-header':
      return isFieldName(given['name']) && isFieldValue(given['value']);
    case 'remove-header':
      return isFieldName(given['name']);
    case 'body':
      return typeof given['write'] === 'function';
    case 'sender':
      return given['address'] === null || isAddress(given['address']);
    case 'add-recipient':
      return isAddress(given['address']) && (given['hop'] === undefined || isHop(given['hop']));
    case 'remove-recipient':
      return isAddress(given['address']);
    default:
      return false;
  }
}

/** RFC 5322 §3.6.8; CR, LF or a colon would start another field. */
function isFieldName(name: unknown): boolean {
  return typeof name === 'string' && /^[!-9;-~]{1,76}$/.test(name);
}

/** Text whose line breaks, if any, are folds (RFC 5322 §2.2.3). */
function isFieldValue(value: unknown): boolean {
  return typeof value === 'string' && /^(?:[^\r\n\0]|\r\n[ \t])*$/.test(value);
}

function isAddress(address: unknown): boolean {
  return typeof address === 'object' && address !== null && 'address' in address && typeof address.address === 'string';
}
