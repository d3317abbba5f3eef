import type { Address } from '../../../core/mime/address.js';
import type { SmtpSession, Transaction } from '../../../core/pipeline/transaction.js';
import { compilePattern } from '../../../core/text/pattern.js';
import { ipCondition } from './ip-condition.js';
import { ruleName, type ProxySettings, type RuleSettings } from './options.js';

type Direction = 'in' | 'out';

/** Input of a rule. */
export interface Candidate {
  readonly ip: string;
  /** Empty before EHLO. */
  readonly ehlo: string;
  /** Empty for the null reverse-path. */
  readonly mail: string;
  readonly rcpt: string;
  readonly direction: Direction;
}

type Key = 'direction' | 'ip' | 'ehlo' | 'mail' | 'rcpt';

interface Condition {
  readonly key: Key;
  readonly written: string;
  readonly holds: (candidate: Candidate) => boolean;
}

/** A compiled rule: all given conditions must match. */
export class ProxyRule {
  readonly name: string;
  readonly settings: RuleSettings;
  readonly #conditions: readonly Condition[];

  constructor(settings: RuleSettings, index: number) {
    this.name = ruleName(settings, index);
    this.settings = settings;
    this.#conditions = conditionsOf(settings);
  }

  /** True without conditions: the rule matches every mail. */
  get takesEverything(): boolean {
    return this.#conditions.length === 0;
  }

  matches(candidate: Candidate): boolean {
    return this.#conditions.every(({ holds }) => holds(candidate));
  }

  /** The conditions that do not match, as text; empty when it matches. */
  whyNot(candidate: Candidate): readonly string[] {
    return this.#conditions.filter(({ holds }) => !holds(candidate)).map((one) => sentenceOf(one, candidate));
  }
}

function conditionsOf({ ip, ehlo, mail, rcpt, direction }: RuleSettings): readonly Condition[] {
  const conditions: Condition[] = [];
  const add = (key: Key, written: string | undefined, holds: (text: string) => boolean): void => {
    if (written !== undefined) conditions.push({ key, written, holds: (candidate) => holds(candidate[key]) });
  };
  add('direction', direction === 'both' ? undefined : direction, (is) => is === direction);
  if (ip !== undefined) add('ip', ip, ipCondition(ip));
  for (const [key, written] of [
    ['rcpt', rcpt],
    ['mail', mail],
    ['ehlo', ehlo],
  ] as const) {
    if (written === undefined) continue;
    const pattern = compilePattern(written, { ignoreCase: true });
    add(key, written, (text) => pattern.matches(text));
  }
  return conditions;
}

const maxShown = 100;

function sentenceOf({ key, written }: Condition, candidate: Candidate): string {
  const value = candidate[key];
  const shown = value.length > maxShown ? `${value.slice(0, maxShown)}…` : value;
  if (key === 'direction') return `The mail goes ${shown}, and the rule is for ${written}.`;
  return `${key} is ${shown === '' ? 'empty' : shown}, and the rule wants ${written}.`;
}

export function candidateOf({ session, reversePath }: Transaction, address: Address): Candidate {
  return {
    ip: session.remote.address,
    ehlo: session.hello?.name ?? '',
    mail: reversePath?.address ?? '',
    rcpt: address.address,
    direction: directionOf(session),
  };
}

/** Mail of signed-in users and of this server is outbound. */
function directionOf({ listener, user, internal }: SmtpSession): Direction {
  return listener.mode === 'submission' || user !== undefined || internal === true ? 'out' : 'in';
}

/** Results of the rules for a message, up to the first that matches. */
interface RuleTest {
  /** Name of the rule that takes it; null for none. */
  readonly rule: string | null;
  readonly steps: readonly { readonly rule: string; readonly matches: boolean; readonly why: readonly string[] }[];
}

/** The rules in order: the first match counts. */
export class RuleBook {
  readonly rules: readonly ProxyRule[];

  constructor({ rules }: ProxySettings) {
    this.rules = rules.map((rule, index) => new ProxyRule(rule, index));
  }

  find(candidate: Candidate): ProxyRule | undefined {
    return this.rules.find((rule) => rule.matches(candidate));
  }

  byName(name: string): ProxyRule | undefined {
    return this.rules.find((rule) => rule.name === name);
  }

  test(candidate: Candidate): RuleTest {
    const steps: { rule: string; matches: boolean; why: readonly string[] }[] = [];
    for (const rule of this.rules) {
      const why = rule.whyNot(candidate);
      steps.push({ rule: rule.name, matches: why.length === 0, why });
      if (why.length === 0) return { rule: rule.name, steps };
    }
    return { rule: null, steps };
  }
}
