import { asciiReplyText, isReplyText, maxReplyText } from '../smtp/protocol/replies.js';
import { stages, type Stage } from './hook.js';
import { isVerdict, type Change, type Hop, type Verdict } from './verdict.js';

type Kind = Verdict['kind'];

/** Where each verdict means something. */
const stagesOf: Readonly<Record<Kind, readonly Stage[]>> = {
  next: stages,
  accept: stages,
  reject: stages,
  defer: stages,
  discard: ['rcptTo', 'message', 'deliver'],
  hold: ['rcptTo', 'message', 'deliver'],
  route: ['rcptTo'],
  change: ['message'],
};

/** What a hook has answered, or a sentence that says why it is no verdict. Nothing of the value is trusted. */
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
      return value.reply === undefined || isYes(value.reply) ? value : 'the reply of a route must be a 2yz';
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

/** A yes to RCPT; its lines are cleaned when they are written. */
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
    case 'add-recipient':
      return isAddress(given['address']) && (given['hop'] === undefined || isHop(given['hop']));
    case 'remove-recipient':
      return isAddress(given['address']);
    default:
      return false;
  }
}

/** RFC 5322 §3.6.8; what has CR, LF or a colon would be another field. */
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
