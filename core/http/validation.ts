import type { z } from 'zod';
import { type InvalidPlace, problem, type Problem, type ProblemName } from '../problem.js';

/** Something that is wrong with a value, and where. */
interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Checks a value; what is wrong with it becomes the problem of that name with every place. */
export function validate(
  schema: z.ZodType | undefined,
  value: unknown,
  name: ProblemName,
  pointers: 'names' | 'json',
): unknown {
  if (schema === undefined) return value;
  const result = schema.safeParse(value, { error: plainMessage });
  if (result.success) return result.data;
  throw problemOf(result.error.issues, name, pointers);
}

/** The problem that tells the issues: the first of them in its sentence. */
export function problemOf(issues: readonly Issue[], name: ProblemName, pointers: 'names' | 'json'): Problem {
  const errors = issues.slice(0, 50).map((issue) => placeOf(issue, pointers));
  const first = errors[0];
  const where = first === undefined || first.pointer === '' ? '' : `${first.pointer}: `;
  return problem(name, { detail: `${where}${first?.message ?? 'invalid'}.`, errors });
}

function placeOf(issue: Issue, pointers: 'names' | 'json'): InvalidPlace {
  const path = issue.path.map((step) => String(step).replaceAll('~', '~0').replaceAll('/', '~1'));
  const pointer = pointers === 'names' ? path.join('.') : path.map((step) => `/${step}`).join('');
  return { pointer, message: issue.message };
}

/** For what people get wrong in a form; undefined keeps the message of the schema. */
const plainMessage: z.core.$ZodErrorMap = (issue) => {
  if (issue.code === 'invalid_type' && issue.input === undefined) return 'is required';
  if (issue.code === 'invalid_type' && ['number', 'int'].includes(issue.expected)) return 'must be a number';
  if (issue.code === 'too_small' && issue.origin === 'string' && issue.minimum === 1) return 'must not be empty';
  if (issue.code === 'too_big' && issue.origin === 'string') return `may have ${issue.maximum} characters at most`;
  return undefined;
};
