import { z } from 'zod';

/**
 * A schema as plain data, for complaints, secrets and the configuration viewer: the part of JSON Schema that zod writes
 * for options.
 */
export interface Outline {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly default?: unknown;
  readonly secret?: boolean;
  readonly properties?: Readonly<Record<string, Outline>>;
  readonly additionalProperties?: Outline | boolean;
  readonly items?: Outline;
  readonly anyOf?: readonly Outline[];
  readonly allOf?: readonly Outline[];
  readonly oneOf?: readonly Outline[];
}

/** Marks a value that is never shown; a file may give it as `{env: "NAME"}` or `{file: "path"}`. */
export const secret = () => z.string().min(1).meta({ secret: true });

const known = new WeakMap<z.ZodType, Outline>();

/** Cached by schema: it is the most expensive part of reading a configuration. */
export function schemaOutline(schema: z.ZodType): Outline {
  const outline =
    known.get(schema) ?? (z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as Outline);
  known.set(schema, outline);
  return outline;
}

/** Alternatives of a value. */
export function alternatives(outline: Outline): readonly Outline[] {
  const nested = [...(outline.anyOf ?? []), ...(outline.allOf ?? []), ...(outline.oneOf ?? [])];
  return nested.length === 0 ? [outline] : [outline, ...nested.flatMap(alternatives)];
}

/** The outline below `key`: property, value of a record, or element of a list. */
export function childOutline(outline: Outline, key: string): Outline | undefined {
  for (const alternative of alternatives(outline)) {
    const property = alternative.properties?.[key];
    if (property !== undefined) return property;
    if (typeof alternative.additionalProperties === 'object') return alternative.additionalProperties;
    if (alternative.items !== undefined && /^\d+$/.test(key)) return alternative.items;
  }
  return undefined;
}

/** Names that an object may use. */
export function knownKeys(outline: Outline): readonly string[] {
  return alternatives(outline).flatMap((alternative) => Object.keys(alternative.properties ?? {}));
}

export const isSecret = (outline: Outline | undefined): boolean =>
  outline !== undefined && alternatives(outline).some((alternative) => alternative.secret === true);

export const defaultOf = (outline: Outline): unknown =>
  alternatives(outline).find((alternative) => alternative.default !== undefined)?.default;

export const descriptionOf = (outline: Outline | undefined): string | null =>
  outline === undefined
    ? null
    : (alternatives(outline).find((alternative) => alternative.description)?.description ?? null);
