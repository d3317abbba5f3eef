import type { z } from 'zod';
import { alternatives, outlineOf, type Outline } from '../config/outline.js';
import type { Fields } from './request-target.js';

/**
 * How the text of a query or form becomes what a schema expects, read from the schema once, when the first comes: the same
 * schema serves JSON bodies, forms and queries.
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

  /** The names that no schema knows. */
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
  const outlines = schema === undefined ? [] : alternatives(outlineOf(schema));
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
