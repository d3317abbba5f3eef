import { compilePattern, type Pattern } from '../../../core/text/pattern.js';
import type { ClientStep } from '../../../core/smtp/client/failure.js';
import { replyRules } from './reply-rules.js';

export const replyCategories = [
  'spam',
  'blacklist',
  'rate',
  'greylist',
  'recipient',
  'capacity',
  'network',
  'policy',
  'protocol',
  'other',
] as const;
export type ReplyCategory = (typeof replyCategories)[number];

/** What becomes of the recipients that a reply is about. */
export type ReplyAction = 'deliver' | 'defer' | 'bounce';

/** A line of the table that refines what the first digit says. */
export interface ReplyRule {
  readonly name: string;
  /** Of RE2, without regard to case; occurs somewhere in `code status text`. */
  readonly pattern: string;
  readonly category: ReplyCategory;
  /** The first digits it is for; 4 and 5 when absent. */
  readonly codes?: '4' | '5';
  /** In place of what the first digit says; only rules of an operator have it. */
  readonly action?: 'defer' | 'bounce';
  /** Seconds until the next try, in place of the schedule's pause. */
  readonly retryAfter?: number;
}

export interface ReplyExplanation {
  readonly action: ReplyAction;
  readonly category: ReplyCategory;
  /** Name of the rule that said so; null when the first digit alone did. */
  readonly rule: string | null;
  readonly retryAfter: number | null;
  /** Why, for a person. */
  readonly because: string;
}

interface CompiledRule extends ReplyRule {
  readonly compiled: Pattern;
}

/** Text of a reply that is looked at. */
const longestText = 1000;
/** Replies of busy days are few: they are looked up once. */
const mostRemembered = 500;

/** Tells what a reply means. The default is its first digit (RFC 5321 §4.2.1); whatever is no reply is temporary. */
export class ReplyClassification {
  readonly #operatorRules: readonly CompiledRule[];
  readonly #remembered = new Map<string, ReplyExplanation>();

  /** @throws Problem `invalid` for a pattern that cannot be read */
  constructor(operatorRules: readonly ReplyRule[] = []) {
    this.#operatorRules = operatorRules.map(compiled);
  }

  explain(code: number, status: string | null, text: string, step: ClientStep | null): ReplyExplanation {
    const line = `${code} ${status ?? ''} ${text}`.slice(0, longestText);
    const key = `${step ?? ''} ${line}`;
    const known = this.#remembered.get(key);
    if (known !== undefined) return known;
    const explained = this.#explain(code, line, step);
    if (this.#remembered.size >= mostRemembered) this.#remembered.clear();
    this.#remembered.set(key, explained);
    return explained;
  }

  #explain(code: number, line: string, step: ClientStep | null): ReplyExplanation {
    const byDigit = digitOf(code, line, step);
    if (byDigit.action === 'deliver') return { ...byDigit, category: 'other', rule: null, retryAfter: null };
    const digit = byDigit.action === 'bounce' ? '5' : '4';
    const fits = ({ compiled, codes }: CompiledRule): boolean =>
      (codes === undefined || codes === digit) && compiled.occursIn(line);
    const rule = this.#operatorRules.find(fits) ?? ownRules().find(fits);
    const action = rule?.action ?? byDigit.action;
    return {
      action,
      category: rule?.category ?? 'other',
      rule: rule?.name ?? null,
      retryAfter: action === 'defer' ? (rule?.retryAfter ?? null) : null,
      because: rule?.action === undefined ? byDigit.because : `The rule "${rule.name}" says so.`,
    };
  }
}

function compiled(rule: ReplyRule): CompiledRule {
  return { ...rule, compiled: compilePattern(rule.pattern, { ignoreCase: true }) };
}

let own: readonly CompiledRule[] | undefined;

/** Compiled when the first reply is looked at: a start need not wait for it. */
function ownRules(): readonly CompiledRule[] {
  own ??= replyRules.map(compiled);
  return own;
}

/** Steps whose refusal says nothing about the mail: another server, or another day, may take it. */
const ofConnection: ReadonlySet<ClientStep> = new Set(['connect', 'greeting', 'hello', 'starttls', 'auth', 'xclient']);

function digitOf(code: number, line: string, step: ClientStep | null): Pick<ReplyExplanation, 'action' | 'because'> {
  if (!Number.isInteger(code) || code < 200 || code > 599) {
    return { action: 'defer', because: 'It is no reply of SMTP: that is temporary.' };
  }
  if (code < 300) return { action: 'deliver', because: 'A code that begins with 2 is a yes.' };
  // RFC 5321 §4.5.3.1.10.
  if (code === 552 && step === 'rcpt' && !/ 5[.](?:2[.][23]|3[.]4)\b/.test(line)) {
    return { action: 'defer', because: '552 to RCPT means too many recipients for one delivery, like 452.' };
  }
  if (code >= 500 && step !== null && ofConnection.has(step)) {
    const because = `It was said before the mail was named (${step}): it is for good only when all servers say so.`;
    return { action: step === 'greeting' || step === 'hello' ? 'bounce' : 'defer', because };
  }
  if (code >= 500) return { action: 'bounce', because: 'A code that begins with 5 is a no for good.' };
  return { action: 'defer', because: 'Other codes are temporary: the mail is tried again.' };
}

let usual: ReplyClassification | undefined;

/** What the server makes of a reply without rules of an operator. */
export function explainReply(
  code: number,
  status: string | null,
  text: string,
  step: ClientStep | null,
): ReplyExplanation {
  usual ??= new ReplyClassification();
  return usual.explain(code, status, text, step);
}
