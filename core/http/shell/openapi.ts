import { createHash } from 'node:crypto';
import { z } from 'zod';
import {
  createDocument,
  type ZodOpenApiContentObject,
  type ZodOpenApiOperationObject,
  type ZodOpenApiResponseObject,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi';
import { type ProblemName, problems } from '../../problem.js';
import type { AccessRules, Gate } from '../access.js';
import { type AnyEndpoint, type BodyDeclaration, defineEndpoint, type Representation, respond } from '../endpoint.js';
import type { EndpointDescription } from '../../contracts/server.js';
import { mediaTypes } from '../negotiation.js';
import { type OpenEndpoint, type Route, schemaOf } from '../routes.js';

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

const operationId = ({ method, path }: Pick<OpenEndpoint, 'method' | 'path'>): string =>
  `${method.toLowerCase()}${path.replaceAll(/[^A-Za-z0-9]+/g, '-').replace(/-$/, '')}`;

const accessLabel = (gate: Gate): string => (gate.kind === 'own' ? 'own account' : gate.access);

/** OpenAPI 3.1 of everything that is mounted. */
export function openApiDocument(routes: readonly Route[], gateOf: (route: Route) => Gate, version: string): object {
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
      query: queryParameters(route),
      header: headerParameters(route),
    },
    ...(body === undefined ? {} : { requestBody: body }),
    responses: { ...successes(route), ...refusals(route, open) },
  };
}

const hasRanges = ({ endpoint, produces }: Route): boolean =>
  endpoint.method === 'GET' && (produces.includes('bytes') || produces.includes('rfc822'));

const hasCondition = ({ endpoint }: Route, name: 'If-Match' | 'If-None-Match'): boolean =>
  endpoint.conditions?.includes(name) === true || (name === 'If-Match' && endpoint.etag !== undefined);

function queryParameters({ endpoint, produces }: Route): z.ZodObject {
  const own = isObject(endpoint.query) ? endpoint.query : z.object({});
  const formats = produces.filter((representation) => representation !== 'bytes');
  if (formats.length < 2 || 'format' in own.shape) return own;
  return own.extend({ format: z.enum(formats).optional().describe('Representation, in place of `Accept`.') });
}

function headerParameters(route: Route): z.ZodObject {
  const tag = z.string().max(1000).optional();
  const shape = {
    ...(route.endpoint.idempotent === true && {
      'Idempotency-Key': z
        .string()
        .regex(/^[!-~]{1,255}$/)
        .optional()
        .describe('A repetition with the same key gets the first answer again, for 24 hours.'),
    }),
    ...(hasCondition(route, 'If-Match') && { 'If-Match': tag.describe('Entity tag; 412 when it is another one now.') }),
    ...(hasCondition(route, 'If-None-Match') && { 'If-None-Match': tag.describe('Entity tag; 304 when it still is.') }),
    ...(hasRanges(route) && { Range: z.string().max(200).optional().describe('One range of bytes (RFC 9110 §14.2).') }),
  };
  return z.object(shape);
}

const locationHeader = z.object({ Location: z.string() });
const nextPage = z.object({ Link: z.string().optional().describe('The next page: `<…>; rel="next"` (RFC 8288).') });
const hasPages = ({ endpoint: { answer } }: Route): boolean => isObject(answer) && 'nextCursor' in answer.shape;

function successes(route: Route): ZodOpenApiResponsesObject {
  const { endpoint, produces } = route;
  const content = answers(route);
  const responses: ZodOpenApiResponsesObject = {};
  for (const status of endpoint.success ?? [200]) {
    if (status === 204) responses['204'] = { description: 'Done; there is nothing to show' };
    else if (status === 303) responses['303'] = { description: 'The page that was meant', headers: locationHeader };
    else if (status === 201 || status === 202)
      responses[`${status}`] = { description: created[status], headers: locationHeader, content };
    else if (status === 503) responses['503'] = { description: 'The server is down', content };
    else responses[`${status}`] = { description: 'The answer', ...(hasPages(route) && { headers: nextPage }), content };
  }
  if (endpoint.method !== 'GET')
    responses['303'] ??= { description: 'For forms: the next page', headers: locationHeader };
  if (hasRanges(route)) responses['206'] = { description: 'One range of it', content: { '*/*': { schema: free } } };
  if (hasCondition(route, 'If-None-Match')) responses['304'] = { description: 'The caller has it already' };
  if (endpoint.confirm !== undefined && !produces.includes('html')) {
    responses['200'] ??= { description: 'For forms: a question to confirm' };
  }
  return responses;
}

const created = { 201: 'Created', 202: 'Accepted; the work is done later' } as const;

/** What the shell may answer to any call, and what follows from the declaration. */
function refusals(route: Route, open: boolean): ZodOpenApiResponsesObject {
  const { endpoint } = route;
  const changes = endpoint.method !== 'GET';
  const names: readonly ProblemName[] = [
    'bad-request',
    ...(open ? [] : (['unauthorized', 'too-many-requests'] as const)),
    'forbidden',
    ...(endpoint.path.includes('{') ? (['not-found'] as const) : []),
    'not-acceptable',
    'misdirected',
    ...(changes ? (['conflict', 'invalid', 'storage-full'] as const) : []),
    ...(endpoint.body === undefined ? [] : (['timeout', 'too-large', 'unsupported-media-type', 'invalid'] as const)),
    ...(hasCondition(route, 'If-Match') ? (['precondition-failed'] as const) : []),
    ...(hasRanges(route) ? (['range-not-satisfiable'] as const) : []),
    'internal',
    'unavailable',
    ...(endpoint.problems ?? []),
  ];
  const responses: ZodOpenApiResponsesObject = {};
  for (const name of names) {
    const status = problems[name].http;
    const response = problemResponses.get(status);
    if (response !== undefined) responses[`${status}` as '400'] = response;
  }
  return responses;
}

const problemHeaders: Readonly<Partial<Record<ProblemName, z.ZodObject>>> = {
  unauthorized: z.object({ 'WWW-Authenticate': z.string() }),
  'too-many-requests': z.object({ 'Retry-After': z.string() }),
  unavailable: z.object({ 'Retry-After': z.string().optional() }),
};

/** One response of `components/responses` for each status. */
const problemResponses = new Map<number, ZodOpenApiResponseObject>();
for (const [name, { title, http }] of Object.entries(problems)) {
  const headers = problemHeaders[name as ProblemName];
  problemResponses.set(http, {
    id: `Problem${http}`,
    description: problemResponses.get(http)?.description ?? title,
    ...(headers !== undefined && { headers }),
    content: { 'application/problem+json': { schema: ProblemSchema } },
  });
}

const isObject = (schema: z.ZodType | undefined): schema is z.ZodObject => schema instanceof z.ZodObject;

/** The schema's description of a parameter; plain text for unnamed ones. */
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
  const files = { type: 'object', additionalProperties: free } as const;
  const types: ZodOpenApiContentObject = {};
  for (const type of raw) types[type] = { schema: type === 'multipart/form-data' ? files : free };
  const required = schema !== undefined && !schema.safeParse({}).success;
  return { required, content: { ...fields, ...types } };
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

/** The gate as far as it is known without a request: rules that name a value of a parameter are ignored. */
export const declaredGate = (rules: AccessRules, { endpoint }: Route): Gate =>
  rules.gate(endpoint.method, endpoint.path, endpoint);

export function describeRoute(route: Route, rules: AccessRules, base: string): EndpointDescription {
  const { endpoint, plugin, produces } = route;
  const gate = declaredGate(rules, route);
  return {
    plugin,
    method: endpoint.method,
    path: endpoint.path,
    summary: endpoint.summary,
    group: endpoint.group,
    access: accessLabel(gate),
    formats: produces,
    curl: curlOf(route, gate, base),
    anchor: operationId(endpoint),
    hidden: endpoint.hidden ?? false,
  };
}

/** A curl call to paste, once the braces are filled in; asks for JSON where curl would get a page. */
function curlOf({ endpoint, produces, fallback }: Route, gate: Gate, base: string): string {
  const words = ['curl'];
  if (gate.kind === 'own') words.push("-u 'USER:PASSWORD'");
  else if (gate.access !== 'public') words.push("-u 'admin:PASSWORD'");
  if (fallback === 'html' && produces.includes('json')) words.push("-H 'Accept: application/json'");
  if (endpoint.method !== 'GET') words.push(`-X ${endpoint.method}`);
  if (schemaOf(endpoint.body) !== undefined) words.push("-H 'Content-Type: application/json' -d '{…}'");
  else if (endpoint.body?.kind === 'raw')
    words.push(`-H 'Content-Type: ${endpoint.body.types[0] ?? ''}' --data-binary @FILE`);
  return `${words.join(' ')} '${base}${endpoint.path}'`;
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required: boolean;
  readonly type: string;
  readonly description: string;
}

/** `/openapi.json` and the page made from it. */
export function docsEndpoints(
  document: () => object,
  describe: () => readonly EndpointDescription[],
): readonly AnyEndpoint[] {
  let docsPage: { document: object; endpoints: readonly EndpointDescription[]; model: object } | undefined;
  return [
    defineEndpoint({
      method: 'GET',
      path: '/openapi.json',
      summary: 'The interface as OpenAPI 3.1',
      group: 'Service',
      access: 'read',
      answer: z.looseObject({ openapi: z.string() }),
      handle: () => respond({ model: document(), etag: tagOf(document()) }),
    }),
    defineEndpoint({
      method: 'GET',
      path: '/docs',
      summary: 'The interface as a page',
      group: 'Service',
      access: 'read',
      view: 'docs.njk',
      produces: ['html'],
      handle: () => {
        const [current, endpoints] = [document(), describe()];
        if (docsPage?.document !== current || docsPage.endpoints !== endpoints) {
          const groups = groupsOf(
            endpoints.filter(({ hidden }) => !hidden),
            current,
          );
          docsPage = { document: current, endpoints, model: { groups } };
        }
        return respond({ model: docsPage.model, etag: tagOf(current) });
      },
    }),
  ];
}

const tags = new WeakMap<object, string>();

/** The entity tag of a document, which is made once. */
function tagOf(document: object): string {
  const remembered = tags.get(document);
  if (remembered !== undefined) return remembered;
  const tag = createHash('sha256').update(JSON.stringify(document)).digest('base64url').slice(0, 22);
  tags.set(document, tag);
  return tag;
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
