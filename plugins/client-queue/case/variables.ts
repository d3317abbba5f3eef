import { uniqueId } from '../../../core/disk/id.js';
import { mailDate } from '../../../core/mime/header.js';
import { problem } from '../../../core/problem.js';
import { CaseEnvelope, type CaseDefinition } from './definition.js';

const longest = 8 * 1024 * 1024;
const placeholder = /\{\$([A-Za-z][A-Za-z0-9_]{0,63})\}/g;

/** Names and values; what a value holds is not looked at again. */
export type Variables = ReadonlyMap<string, string>;

/** Those of the case and those that the server gives; `uid` is another one for each message. */
export function variablesOf({ $ }: Pick<CaseDefinition, '$'>, now: Date, uid = uniqueId()): Variables {
  const given = Object.entries($).map(([name, value]) => [name, String(value)] as const);
  const day = now.toISOString().slice(0, 10).replaceAll('-', '');
  return new Map([['uid', uid], ['date', mailDate(now)], ['yymd', day], ...given]);
}

/**
 * The envelope with `{$name}` replaced in all its texts, checked anew.
 * @throws Problem `invalid` for a name that is not known, and for a value that does not fit its place
 */
export function withVariables(envelope: CaseEnvelope, variables: Variables): CaseEnvelope {
  const read = CaseEnvelope.safeParse(expand(envelope, variables, { left: longest }));
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw problem('invalid', `With its variables, ${issue?.path.join('.') ?? 'the envelope'} ${issue?.message ?? ''}.`);
}

function expand(value: unknown, variables: Variables, budget: { left: number }): unknown {
  if (typeof value === 'string') return replaced(value, variables, budget);
  if (Array.isArray(value)) return value.map((element) => expand(element, variables, budget));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, element]) => [key, expand(element, variables, budget)]));
}

function replaced(text: string, variables: Variables, budget: { left: number }): string {
  return text.replace(placeholder, (written, name: string) => {
    const value = variables.get(name);
    if (value === undefined) throw problem('invalid', `There is no variable ${written}.`);
    budget.left -= value.length;
    if (budget.left < 0) throw problem('invalid', 'The variables make the case too large.');
    return value;
  });
}
