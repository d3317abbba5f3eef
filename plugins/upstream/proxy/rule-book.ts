import type { ProxySettings } from './options.js';
import { type Candidate, ProxyRule } from './rule.js';

/** What the rules say of a mail, one after the other up to the one that takes it. */
export interface RuleTest {
  /** Name of the rule that takes it; null for none. */
  readonly rule: string | null;
  readonly steps: readonly { readonly rule: string; readonly matches: boolean; readonly why: readonly string[] }[];
}

/** The rules in their order: the first that matches counts. */
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
