import JSON5 from 'json5';
import { z } from 'zod';
import { ServerOptions } from '../../core/config/options.js';
import type { Plugin } from '../../core/plugin.js';

/** What zod writes for options, as far as the schema for editors and the reference read it. */
export interface JsonSchema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly additionalProperties?: JsonSchema | boolean;
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  /** Zod's own names where there is a pattern. */
  readonly format?: string;
  readonly pattern?: string;
  readonly secret?: boolean;
  /** What the default is, when each machine has its own. */
  readonly computedDefault?: string;
  /** The version that brought the key, if it was not the first: `.meta({ since: '0.2' })`. Of a group, for all its keys. */
  readonly since?: string;
}

/** The schema of `postern.json5` with the options of these plugins. The same on every machine. */
export function configurationSchema(plugins: readonly Plugin[]): JsonSchema {
  const server = plain(schemaOf(ServerOptions));
  const options = plugins.map(({ name, options }) => [
    name,
    {
      description: 'Options of the plugin; `false` switches it off.',
      anyOf: [{ const: false }, plain(schemaOf(options))],
    },
  ]);
  return {
    ...server,
    properties: {
      ...server.properties,
      plugins: {
        ...server.properties?.['plugins'],
        properties: Object.fromEntries(options) as Readonly<Record<string, JsonSchema>>,
      },
    },
  };
}

const schemaOf = (schema: z.ZodType): JsonSchema =>
  z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as JsonSchema;

/** Without what differs from one machine to another. */
function plain(schema: JsonSchema): JsonSchema {
  return Object.fromEntries(
    Object.entries(schema)
      .filter(([key]) => !(key === 'default' && schema.computedDefault !== undefined))
      .map(([key, value]: [string, unknown]) => [key, plainMember(key, value)]),
  ) as JsonSchema;
}

function plainMember(key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (key === 'items' || key === 'additionalProperties') return plain(value);
  if (key === 'anyOf') return (value as readonly JsonSchema[]).map(plain);
  if (key !== 'properties') return value;
  return Object.fromEntries(Object.entries(value).map(([name, below]) => [name, plain(below as JsonSchema)]));
}

const fromElsewhere = [
  { type: 'object', properties: { env: { type: 'string' } }, required: ['env'], additionalProperties: false },
  { type: 'object', properties: { file: { type: 'string' } }, required: ['file'], additionalProperties: false },
];

/**
 * The schema as editors read it (JSON Schema 2020-12): a secret may stand in a variable or in a file. Options of other
 * plugins are not checked.
 */
export function editorSchema(plugins: readonly Plugin[]): string {
  const { $schema, ...schema } = configurationSchema(plugins) as JsonSchema & { readonly $schema?: string };
  const text = JSON.stringify({ $schema, title: 'Configuration of Postern', ...schema }, forEditors, 2);
  return `${text}\n`;
}

function forEditors(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const { secret, computedDefault: _, since: _since, format, ...rest } = value as JsonSchema;
  const schema = { ...rest, ...(rest.pattern === undefined && format !== undefined && { format }) };
  if (secret !== true) return schema;
  const { description, ...text } = schema;
  return { description, anyOf: [text, ...fromElsewhere] };
}

/** One key of the configuration. */
export interface ReferenceEntry {
  /** `smtp.listeners[].port`; NAME is a name of your own. */
  readonly key: string;
  readonly type: string;
  /** Of numbers that are no counts. */
  readonly unit: string;
  /** JSON5, or words; empty for none. */
  readonly defaultText: string;
  /** JSON5; empty where neither the schema nor the type gives one. */
  readonly example: string;
  readonly description: string;
  /** The version that brought it; empty for the first. */
  readonly since: string;
}

/** Every key that has a value of its own, in the order of the schema. */
export function referenceEntries(plugins: readonly Plugin[]): readonly ReferenceEntry[] {
  const found = new Map<string, ReferenceEntry>();
  function walk(schema: JsonSchema, key: string, since = ''): void {
    const version = schema.since ?? since;
    const ways = alternativesOf(schema);
    const properties = ways.flatMap(({ properties: some }) => Object.entries(some ?? {}));
    const named = ways.map(({ additionalProperties: below }) => below).find((below) => typeof below === 'object');
    const items = ways.map(({ items: below }) => below).find((below) => below !== undefined && hasKeys(below));
    const isWord = ways.some(({ const: word }) => typeof word === 'string');
    if ((isWord || properties.length === 0) && !isGroup(named) && items === undefined && !found.has(key)) {
      found.set(key, entryOf(key, schema, version));
    }
    for (const [name, below] of properties) walk(below, key === '' ? name : `${key}.${name}`, version);
    if (isGroup(named) && key !== 'plugins') walk(named, `${key}.NAME`, version);
    if (items !== undefined) walk(items, `${key}[]`, version);
  }
  walk(configurationSchema(plugins), '');
  return [...found.values()];
}

const alternativesOf = (schema: JsonSchema): readonly JsonSchema[] => [
  schema,
  ...(schema.anyOf ?? []).flatMap(alternativesOf),
];

const hasKeys = (schema: JsonSchema): boolean =>
  alternativesOf(schema).some(({ properties, items }) => properties !== undefined || (items && hasKeys(items)));

const isGroup = (schema: JsonSchema | boolean | undefined): schema is JsonSchema =>
  typeof schema === 'object' && hasKeys(schema);

function entryOf(key: string, schema: JsonSchema, since: string): ReferenceEntry {
  const { computedDefault, default: value, description = '' } = schema;
  const example = exampleOf(schema);
  return {
    key,
    type: typeOf(schema),
    unit: unitOf(key, typeOf(schema), description),
    defaultText: computedDefault ?? (value === undefined ? '' : code(value)),
    example: example === undefined ? '' : code(example),
    description,
    since,
  };
}

const code = (value: unknown): string =>
  JSON5.stringify(value)
    .replace(/,(?=\S)/g, ', ')
    .replace(/^\{(\w+):(.*)\}$/, '{ $1: $2 }');

function typeOf(schema: JsonSchema): string {
  const { type, anyOf, items, minimum, maximum, secret } = schema;
  if (secret === true) return 'secret text';
  if (schema.enum !== undefined) return schema.enum.map((value) => code(value)).join(', ');
  if (schema.const !== undefined) return code(schema.const);
  if (anyOf !== undefined) return [...new Set(anyOf.map(typeOf))].join(', or ');
  if (type === 'array') return `list of: ${items === undefined ? 'any' : typeOf(items)}`;
  if (type === 'string') return 'text';
  if (type === 'boolean') return 'true, false';
  if (type !== 'integer' && type !== 'number') return type ?? 'any';
  const isBounded = maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER;
  const least = minimum === undefined || minimum <= Number.MIN_SAFE_INTEGER ? undefined : minimum;
  const range = isBounded ? `${least ?? ''} to ${maximum}` : least === undefined ? '' : `${least} or more`;
  return `${type === 'integer' ? 'whole number' : 'number'}${range === '' ? '' : `, ${range}`}`;
}

const unitNames = ['milliseconds', 'seconds', 'minutes', 'hours', 'days', 'bytes', 'percent'] as const;
const suffixes: Readonly<Record<string, string>> = { Ms: 'milliseconds' };

/** By the name of the key (`timeoutMs`), else by its description (`… Seconds.`, `… in bytes`). */
function unitOf(key: string, type: string, description: string): string {
  if (!type.includes('number')) return '';
  const [suffix = ''] = /[A-Z][a-z]+$/.exec(key) ?? [];
  const named = suffixes[suffix] ?? unitNames.find((unit) => unit === suffix.toLowerCase());
  const said = /\b(?:in (milliseconds|seconds|minutes|hours|days|bytes)\b|(Milliseconds|Seconds|Bytes|Days)\.)/.exec(
    description,
  );
  return named ?? (said?.[1] ?? said?.[2] ?? '').toLowerCase();
}

const isEmpty = (value: unknown): boolean =>
  value === undefined || (typeof value === 'object' && value !== null && Object.keys(value).length === 0);

/** From the schema, else the default, else what the type gives: a first alternative, the least number. */
function exampleOf(schema: JsonSchema): unknown {
  const { examples, default: usual, enum: values, type, minimum = 1, items, anyOf } = schema;
  if (examples?.[0] !== undefined) return examples[0];
  if (schema.secret === true) return { env: 'NAME' };
  if (!isEmpty(usual)) return usual;
  if (values !== undefined) return values[0];
  if (schema.const !== undefined) return schema.const;
  if (type === 'boolean') return true;
  if (type === 'integer' || type === 'number') return Math.max(minimum, 1);
  if (type === 'array' && items !== undefined) {
    const item = exampleOf(items);
    return item === undefined ? undefined : [item];
  }
  return anyOf?.map(exampleOf).find((example) => example !== undefined);
}

/** The reference as Markdown: one table for each section. */
export function referenceText(plugins: readonly Plugin[]): string {
  const sections = new Map<string, ReferenceEntry[]>();
  for (const entry of referenceEntries(plugins)) {
    const name = sectionOf(entry.key);
    sections.set(name, [...(sections.get(name) ?? []), entry]);
  }
  const blocks = [...sections].map(([name, entries]) =>
    [
      `## ${name}`,
      '',
      '| Key | Type | Unit | Default | Example | What it is |',
      '| --- | --- | --- | --- | --- | --- |',
      ...entries.map(rowOf),
    ].join('\n'),
  );
  return `${[introduction, ...blocks].join('\n\n')}\n`;
}

/** Its keys are not marked. */
export const firstVersion = '0.1';

const introduction = `# Configuration

Every key of \`postern.json5\`. This page is what \`postern config reference\` prints; with plugins of your site in the configuration, it has
their options too. \`postern config show\` prints what is in force and where it comes from, \`postern config check\` finds mistakes, and
[postern.schema.json](postern.schema.json) lets editors complete the keys: \`init\` names it as \`$schema\`.

\`[]\` is an element of a list, \`NAME\` for a name of your own. A secret may be kept elsewhere: \`{ env: 'NAME' }\` or \`{ file: 'path' }\`.
\`plugins: { NAME: false }\` switches a plugin off. Relative paths are relative to the configuration file, if nothing else is said. A key that
names no version is there since ${firstVersion}.`;

function sectionOf(key: string): string {
  const [first = '', second] = key.split(/\.|\[\]/);
  if (second === undefined) return 'server';
  return first === 'plugins' ? `plugins.${second}` : first;
}

function rowOf({ key, type, unit, defaultText, example, description, since }: ReferenceEntry): string {
  const about = since === '' ? description : `${description} Since ${since}.`;
  const cells = [`\`${key}\``, type, unit, marked(defaultText), marked(example), about];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replace(/\s+/g, ' ')).join(' | ')} |`;
}

const marked = (text: string): string => (text === '' || text.startsWith('the ') ? text : `\`${text}\``);
