import { z } from 'zod';
import { defineEndpoint, respond, type AnyEndpoint, type EndpointDescription } from './endpoint.js';

export interface DocsInput {
  readonly document: () => object;
  readonly describe: () => readonly EndpointDescription[];
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required: boolean;
  readonly type: string;
  readonly description: string;
}

/** `/openapi.json` and the page made from it. */
export function docsEndpoints({ document, describe }: DocsInput): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: '/openapi.json',
      summary: 'The interface as OpenAPI 3.1',
      group: 'Service',
      access: 'read',
      answer: z.looseObject({ openapi: z.string() }),
      handle: () => respond({ model: document() }),
    }),
    defineEndpoint({
      method: 'GET',
      path: '/docs',
      summary: 'The interface as a page',
      group: 'Service',
      access: 'read',
      view: 'docs.njk',
      produces: ['html'],
      handle: () => ({
        groups: groupsOf(
          describe().filter(({ hidden }) => !hidden),
          document(),
        ),
      }),
    }),
  ];
}

function groupsOf(endpoints: readonly EndpointDescription[], document: object) {
  const groups = new Map<string, object[]>();
  for (const endpoint of endpoints) {
    const operation = operationOf(document, endpoint);
    const entry = { ...endpoint, parameters: parametersOf(operation), body: bodyOf(operation) };
    groups.set(endpoint.group, [...(groups.get(endpoint.group) ?? []), entry]);
  }
  return [...groups].map(([name, entries]) => ({ name, endpoints: entries }));
}

interface Schema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly anyOf?: readonly Schema[];
}

interface Operation {
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly description?: string;
    readonly schema?: Schema;
  }[];
  readonly requestBody?: { readonly content?: Readonly<Record<string, { readonly schema?: Schema }>> };
}

function operationOf(document: object, { method, path }: EndpointDescription): Operation {
  const { paths = {} } = document as { paths?: Readonly<Record<string, Readonly<Record<string, Operation>>>> };
  return paths[path]?.[method.toLowerCase()] ?? {};
}

const parametersOf = ({ parameters = [] }: Operation): readonly Parameter[] =>
  parameters.map(({ name, in: place, required, description, schema }) => ({
    name,
    in: place,
    required: required ?? false,
    type: typeOf(schema),
    description: description ?? schema?.description ?? '',
  }));

/** The first-level fields of a JSON body, and the accepted content types. */
function bodyOf({ requestBody }: Operation) {
  const content = requestBody?.content ?? {};
  const schema = content['application/json']?.schema;
  const fields = Object.entries(schema?.properties ?? {}).map(([name, field]) => ({
    name,
    in: 'body',
    required: schema?.required?.includes(name) ?? false,
    type: typeOf(field),
    description: field.description ?? '',
  }));
  return { types: Object.keys(content), fields };
}

function typeOf(schema: Schema | undefined): string {
  if (schema === undefined) return 'any';
  if (schema.enum !== undefined) return schema.enum.map(String).join(' | ');
  if (schema.anyOf !== undefined) return [...new Set(schema.anyOf.map(typeOf))].join(' | ');
  return [schema.type ?? 'any'].flat().join(' | ');
}
