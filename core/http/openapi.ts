import { z } from 'zod';
import { createDocument, type ZodOpenApiOperationObject } from 'zod-openapi';
import type { Gate } from './access-rules.js';
import type { BodyDeclaration, Representation } from './endpoint.js';
import { mediaTypes } from './negotiation.js';
import { schemaOf, type OpenEndpoint, type Route } from './route.js';

export interface OpenApiInput {
  readonly routes: readonly Route[];
  readonly gateOf: (route: Route) => Gate;
  readonly version: string;
}

const ProblemSchema = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.int().min(400).max(599),
    detail: z.string().optional(),
    requestId: z.string(),
    errors: z.array(z.object({ pointer: z.string(), message: z.string() })).optional(),
    instead: z.array(z.object({ href: z.string(), title: z.string() })).optional(),
  })
  .meta({ id: 'Problem', description: 'RFC 9457' });

const free = { type: 'string', format: 'binary' } as const;

export const operationId = ({ method, path }: Pick<OpenEndpoint, 'method' | 'path'>): string =>
  `${method.toLowerCase()}${path.replaceAll(/[^A-Za-z0-9]+/g, '-').replace(/-$/, '')}`;

export const accessLabel = (gate: Gate): string => (gate.kind === 'own' ? 'own account' : gate.access);

/** OpenAPI 3.1 of everything that is mounted. */
export function openApiDocument({ routes, gateOf, version }: OpenApiInput): object {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const route of routes) {
    const { method, path } = route.endpoint;
    paths[path] = { ...paths[path], [method.toLowerCase()]: operation(route, gateOf(route)) };
  }
  return createDocument({
    openapi: '3.1.0',
    info: {
      title: 'Postern',
      version,
      description: 'Management interface of the mail server. Errors are application/problem+json (RFC 9457).',
    },
    servers: [{ url: '/' }],
    components: { securitySchemes: { basic: { type: 'http', scheme: 'basic' } } },
    paths,
  });
}

function operation(route: Route, gate: Gate): ZodOpenApiOperationObject {
  const { endpoint } = route;
  const body = requestBody(endpoint.body);
  const open = gate.kind === 'access' && gate.access === 'public';
  return {
    operationId: operationId(endpoint),
    summary: endpoint.summary,
    description: `Access: ${accessLabel(gate)}.`,
    tags: [endpoint.group],
    security: open ? [{}] : [{ basic: [] }],
    requestParams: {
      path: pathParameters(endpoint),
      ...(isObject(endpoint.query) ? { query: endpoint.query } : {}),
    },
    ...(body === undefined ? {} : { requestBody: body }),
    responses: {
      '200': { description: 'The answer', content: answers(route) },
      '4XX': { description: 'A problem', content: { 'application/problem+json': { schema: ProblemSchema } } },
    },
  };
}

const isObject = (schema: z.ZodType | undefined): schema is z.ZodObject => schema instanceof z.ZodObject;

/** What the schema says of a parameter; plain text for those that it does not name. */
function pathParameters({ path, params }: OpenEndpoint): z.ZodObject {
  const shape: Readonly<Record<string, z.core.$ZodType>> = isObject(params) ? params.shape : {};
  const names = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name = '']) => name);
  return z.object(Object.fromEntries(names.map((name) => [name, shape[name] ?? z.string()])));
}

function requestBody(body: BodyDeclaration<z.ZodType> | undefined): ZodOpenApiOperationObject['requestBody'] {
  if (body === undefined) return undefined;
  const schema = schemaOf(body);
  const fields =
    schema === undefined ? {} : { 'application/json': { schema }, 'application/x-www-form-urlencoded': { schema } };
  const raw = body.kind === 'fields' ? [] : body.types;
  return { content: { ...fields, ...Object.fromEntries(raw.map((type) => [type, { schema: free }])) } };
}

function answers({ endpoint, produces }: Route) {
  const type = (representation: Representation) => (representation === 'bytes' ? '*/*' : mediaTypes[representation]);
  return Object.fromEntries(
    produces.map((representation) => [
      type(representation),
      { schema: representation === 'json' ? (endpoint.answer ?? {}) : { type: 'string' as const } },
    ]),
  );
}
