import type { z } from 'zod';
import { alternatives, type Outline, schemaOutline } from '../contracts/outline.js';
import { type InvalidPlace, problem, type Problem, type ProblemName } from '../problem.js';

/** A fault of a value, with its position. */
interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Checks a value; faults become the problem of that name with all positions. */
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

/** The problem for the faults: the first of them in its sentence. */
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

/** Names of unknown fields in a message. */
const maxNamedFields = 5;

function tooManyKeys(keys: readonly string[]): string {
  const names = keys.slice(0, maxNamedFields).map((name) => JSON.stringify(name.slice(0, 100)));
  return `Unrecognized keys: ${names.join(', ')} and ${keys.length - maxNamedFields} more`;
}

/** For common mistakes in forms; undefined keeps the message of the schema. */
const plainMessage: z.core.$ZodErrorMap = (issue) => {
  if (issue.code === 'invalid_type' && issue.input === undefined) return 'is required';
  if (issue.code === 'invalid_type' && ['number', 'int'].includes(issue.expected)) return 'must be a number';
  if (issue.code === 'unrecognized_keys' && issue.keys.length > maxNamedFields) return tooManyKeys(issue.keys);
  if (issue.code === 'too_small' && issue.origin === 'string' && issue.minimum === 1) return 'must not be empty';
  if (issue.code === 'too_big' && issue.origin === 'string') return `may have ${issue.maximum} characters at most`;
  return undefined;
};

/**
 * How text of a query or form becomes what a schema expects; derived from the schema on first use: the same schema
 * serves JSON bodies, forms and queries.
 */
export class FieldShape {
  readonly #schema: z.ZodType | undefined;
  #known: SchemaFields | undefined;

  constructor(schema: z.ZodType | undefined) {
    this.#schema = schema;
  }

  get #fields(): SchemaFields {
    this.#known ??= fieldsOf(this.#schema);
    return this.#known;
  }

  /** Names that no schema has. */
  unknown(fields: Fields): readonly string[] {
    const { open, kinds } = this.#fields;
    return open ? [] : Object.keys(fields).filter((name) => !kinds.has(name));
  }

  /**
   * Numbers, booleans and lists where the schema has them. An empty field counts as absent, as null where null is
   * allowed, and as empty text where text is. What does not fit stays text, and the schema says so.
   */
  read(fields: Fields): Record<string, unknown> {
    const read: Record<string, unknown> = {};
    const { kinds } = this.#fields;
    for (const [name, value] of Object.entries(fields)) {
      const typed = typeField(value, kinds.get(name) ?? new Set());
      if (typed !== undefined) Object.defineProperty(read, name, { value: typed, enumerable: true, writable: true });
    }
    return read;
  }
}

/** The kinds of value that each name may have, and whether other names may come. */
interface SchemaFields {
  readonly open: boolean;
  readonly kinds: ReadonlyMap<string, ReadonlySet<string>>;
}

function fieldsOf(schema: z.ZodType | undefined): SchemaFields {
  const outlines = schema === undefined ? [] : alternatives(schemaOutline(schema));
  const kinds = new Map<string, ReadonlySet<string>>();
  for (const { properties = {} } of outlines) {
    for (const [name, outline] of Object.entries(properties)) kinds.set(name, kindsOf(outline));
  }
  return { open: outlines.some(({ additionalProperties }) => typeof additionalProperties === 'object'), kinds };
}

function kindsOf(outline: Outline): ReadonlySet<string> {
  return new Set(alternatives(outline).flatMap(({ type }) => type ?? []));
}

function typeField(value: string | readonly string[], kinds: ReadonlySet<string>): unknown {
  if (typeof value !== 'string') return value;
  if (value === '' && kinds.size > 0) return kinds.has('null') ? null : kinds.has('string') ? '' : undefined;
  if (kinds.has('number') || kinds.has('integer')) {
    if (/^-?(0|[1-9]\d{0,15})(\.\d{1,15})?$/.test(value)) return Number(value);
  }
  if (kinds.has('boolean')) {
    if (['true', 'on', 'yes', '1'].includes(value)) return true;
    if (['false', 'off', 'no', '0'].includes(value)) return false;
  }
  return kinds.has('array') && !kinds.has('string') ? [value] : value;
}

/** Fields of a query or of a form: text, or a list of texts when a name occurs twice. Has no prototype. */
export type Fields = Readonly<Record<string, string | readonly string[]>>;
