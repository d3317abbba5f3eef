import type { ClientStep } from '../../../core/smtp/client/failure.js';
import { compilePattern, type Pattern } from '../../../core/text/pattern.js';

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
type ReplyCategory = (typeof replyCategories)[number];

/** What happens to the recipients of a reply. */
export type ReplyAction = 'deliver' | 'defer' | 'bounce';

/** A rule that refines the first digit of a reply. */
export interface ReplyRule {
  readonly name: string;
  /** RE2, case-insensitive; searched in `code status text`. */
  readonly pattern: string;
  readonly category: ReplyCategory;
  /** First digits it applies to; default 4 and 5. */
  readonly codes?: '4' | '5';
  /** Replaces the meaning of the first digit; only for rules of an operator. */
  readonly action?: 'defer' | 'bounce';
  /** Seconds until the next attempt; from the fourth attempt on, a longer pause of the schedule wins. */
  readonly retryAfter?: number;
}

interface ReplyExplanation {
  readonly action: ReplyAction;
  readonly category: ReplyCategory;
  /** Name of the matching rule; null when only the first digit decided. */
  readonly rule: string | null;
  readonly retryAfter: number | null;
  /** Explanation for a person. */
  readonly because: string;
}

interface CompiledRule extends ReplyRule {
  readonly compiled: Pattern;
}

/** Characters of a reply that are searched. */
const maxText = 1000;
/** Replies repeat, so results are cached. */
const maxRemembered = 500;

/** Classifies replies. The default is the first digit (RFC 5321 §4.2.1); an invalid reply is temporary. */
export class ReplyClassification {
  readonly #operatorRules: readonly CompiledRule[];
  readonly #remembered = new Map<string, ReplyExplanation>();

  /** @throws Problem `invalid` for a pattern that cannot be read */
  constructor(operatorRules: readonly ReplyRule[] = []) {
    this.#operatorRules = operatorRules.map(compiled);
  }

  explain(code: number, status: string | null, text: string, step: ClientStep | null): ReplyExplanation {
    const line = `${code} ${status ?? ''} ${text}`.slice(0, maxText);
    const key = `${step ?? ''} ${line}`;
    const known = this.#remembered.get(key);
    if (known !== undefined) return known;
    const explained = this.#explain(code, line, step);
    if (this.#remembered.size >= maxRemembered) this.#remembered.clear();
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

/** Compiled on first use, which keeps it out of the start. */
function ownRules(): readonly CompiledRule[] {
  own ??= replyRules.map(compiled);
  return own;
}

/** Steps whose refusal says nothing about the message: another server may accept it. */
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
    const because = `It was said before the mail was named (${step}): it is permanent only when all servers say so.`;
    return { action: step === 'greeting' || step === 'hello' ? 'bounce' : 'defer', because };
  }
  if (code >= 500) return { action: 'bounce', because: 'A code that begins with 5 is a permanent refusal.' };
  return { action: 'defer', because: 'Other codes are temporary: the mail is tried again.' };
}

let usual: ReplyClassification | undefined;

/** Classification without rules of an operator. */
export function explainReply(
  code: number,
  status: string | null,
  text: string,
  step: ClientStep | null,
): ReplyExplanation {
  usual ??= new ReplyClassification();
  return usual.explain(code, status, text, step);
}

/** The rule for a server that takes fewer recipients at a time. */
export const tooManyRecipients = 'too-many-recipients';

/**
 * Meanings of replies, the first match counts. The first digit decides whether mail is retried; these only explain, and
 * set the delay. Patterns are RE2, case-insensitive, searched in `code status text`.
 */
export const replyRules: readonly ReplyRule[] = [
  {
    name: tooManyRecipients,
    pattern: '^(452|552) .*too many recipients|^45[0-9] 4[.]5[.]3',
    category: 'capacity',
    retryAfter: 5,
  },
  {
    name: 'greylisted',
    pattern: 'gr[ae]y.?list|^4[0-9][0-9] .*(first time|try again in \\d+ (sec|min)|please retry)',
    category: 'greylist',
    codes: '4',
    retryAfter: 300,
  },
  {
    name: 'rate',
    pattern:
      '(rate|sending|connection|message).{0,20}limit|too (many|fast|much) (connection|message|mail|concurrent|session|error)|throttl|4[.]7[.]28|slow down|exceed.{0,30}(rate|hourly|quota of messages)',
    category: 'rate',
    retryAfter: 900,
  },
  {
    name: 'block-list',
    pattern:
      'block.?list|black.?list|\\b(dnsbl|rbl|spamhaus|spamcop|barracuda|sorbs|uceprotect)\\b|blocked using|poor reputation|bad reputation',
    category: 'blacklist',
  },
  {
    name: 'authentication-policy',
    pattern: '\\b(spf|dkim|dmarc)\\b|5[.]7[.]2[0-9]\\b|unauthenticated (email|mail|sender)',
    category: 'policy',
  },
  {
    name: 'spam',
    pattern:
      '\\bspam(my|mer|ming)?\\b|\\bjunk mail|\\bbulk mail|\\bphish|content.{0,20}(reject|refus|filter)|suspicious|\\bvirus|\\bmalware|unsolicited',
    category: 'spam',
  },
  {
    name: 'mailbox-full',
    pattern:
      '[45][.]2[.]2\\b|(mail)?box.{0,20}(is )?full|over.?quota|quota.{0,20}exceed|exceed.{0,20}quota|insufficient (mailbox|user) storage',
    category: 'capacity',
    retryAfter: 3600,
  },
  {
    name: 'unknown-recipient',
    pattern:
      '[45][.]1[.][1236]\\b|(user|recipient|mailbox|account|address).{0,30}(unknown|not (found|exist|known)|does.?n.t exist|no longer|invalid|unavailable|disabled|inactive)|(no such|unknown|invalid|bad) (user|recipient|mailbox|account|address|destination)|nosuchuser',
    category: 'recipient',
  },
  { name: 'mailbox-disabled', pattern: '5[.]2[.]1\\b', category: 'recipient' },
  {
    name: 'no-such-domain',
    pattern: '5[.]1[.](2|10)\\b|5[.]4[.]4\\b|host or domain.{0,20}not found|null mx',
    category: 'recipient',
  },
  { name: 'relay', pattern: 'relay(ing)?.{0,20}(denied|not (permitted|allowed))|not.{0,20}relay', category: 'policy' },
  {
    name: 'message-size',
    pattern: '[45][.](3[.]4|2[.]3)\\b|(message|mail|size).{0,30}(too (large|big)|exceed)',
    category: 'capacity',
  },
  {
    name: 'disk',
    pattern:
      '4[.]3[.]1\\b|insufficient system (storage|resources)|(disk|space).{0,20}full|out of (disk|space|memory)|no space',
    category: 'capacity',
    retryAfter: 900,
  },
  { name: 'loop', pattern: '[45][.]4[.]6\\b|too many hops|mail loop|loops? back', category: 'network' },
  {
    name: 'network',
    pattern: '4[.]4[.][0-9]+\\b|timed? ?out|connection (refused|reset|lost|closed)|unreachable|no route',
    category: 'network',
  },
  {
    name: 'server-busy',
    pattern:
      '^421 |4[.]3[.][02]\\b|(service|server).{0,30}(unavailable|busy|overload|not available)|too busy|try (again )?later|temporar',
    category: 'network',
  },
  {
    name: 'encryption',
    pattern: '[45][.]7[.](10|11)\\b|starttls|must (use|issue).{0,20}tls|certificate',
    category: 'policy',
  },
  {
    name: 'sign-in',
    pattern: '^5(30|34|35|38) |[45][.]7[.]8\\b|authentication (required|failed|credentials)',
    category: 'policy',
  },
  {
    name: 'policy',
    pattern:
      '[45][.]7[.][0-9]+\\b|polic(y|ies)|not (authori[sz]ed|permitted|allowed|accepted)|access denied|reject(ed)? (by|for)|refus(ed|al)|prohibit',
    category: 'policy',
  },
  { name: 'international', pattern: '[45][.]6[.]([1-9]|10)\\b|smtputf8|8bitmime', category: 'policy' },
  {
    name: 'protocol',
    pattern: '[45][.]5[.][0-9]+\\b|syntax error|bad sequence|command (not|un)',
    category: 'protocol',
  },
];
