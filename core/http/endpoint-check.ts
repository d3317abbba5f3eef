import { startError } from '../problem.js';
import type { Access, Endpoint, Method, Representation } from './endpoint.js';

const methods: readonly Method[] = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
const accesses: readonly Access[] = ['public', 'read', 'operate', 'admin'];
const representations: readonly Representation[] = [
  'html',
  'json',
  'text',
  'rfc822',
  'ndjson',
  'openmetrics',
  'events',
  'bytes',
];
const bodyKinds = ['fields', 'raw', 'either'];

/** Site plugins are JavaScript, so this checks at run time what the compiler checks for others. @throws start error */
export function refuseBadEndpoint(plugin: string, endpoint: Endpoint): void {
  const complaint = complaintOf(endpoint);
  if (complaint === undefined) return;
  const { method, path } = endpoint as { readonly [K in keyof Endpoint]: unknown };
  throw startError(`Plugin ${plugin}, endpoint ${String(method)} ${String(path)}: ${complaint}`);
}

function complaintOf(endpoint: { readonly [K in keyof Endpoint]?: unknown }): string | undefined {
  const { method, path, summary, group, access, produces = [], body, handle } = endpoint;
  if (!isOneOf(methods, method)) return `there is no method ${JSON.stringify(method)}; methods: ${methods.join(', ')}.`;
  if (typeof path !== 'string' || !path.startsWith('/')) return 'path must begin with "/".';
  if (path.startsWith('/assets/')) return 'the paths below /assets/ are those of files.';
  if (typeof summary !== 'string' || summary === '') return 'summary must be a sentence for the landing page.';
  if (typeof group !== 'string' || group === '') return 'group must be a heading of the landing page, such as Site.';
  if (!isOneOf(accesses, access))
    return `there is no access ${JSON.stringify(access)}; access: ${accesses.join(', ')}.`;
  if (!Array.isArray(produces)) return 'produces must be a list of representations.';
  const strange = (produces as readonly unknown[]).find((one) => !isOneOf(representations, one));
  if (strange !== undefined)
    return `there is no representation ${JSON.stringify(strange)}; ${representations.join(', ')}.`;
  if (typeof handle !== 'function') return 'handle must be a function.';
  return schemaComplaint(endpoint) ?? bodyComplaint(body);
}

function schemaComplaint(endpoint: { readonly [K in keyof Endpoint]?: unknown }): string | undefined {
  const key = (['params', 'query', 'answer'] as const).find(
    (one) => endpoint[one] !== undefined && !isSchema(endpoint[one]),
  );
  return key === undefined ? undefined : `${key} must be a zod schema; z from postern/plugin makes them.`;
}

function bodyComplaint(body: unknown): string | undefined {
  if (body === undefined) return undefined;
  const { kind, schema, types } = Object(body) as Readonly<Record<string, unknown>>;
  if (!isOneOf(bodyKinds, kind)) return `body.kind must be one of ${bodyKinds.join(', ')}.`;
  if (kind !== 'raw' && !isSchema(schema)) return 'body.schema must be a zod schema; z from postern/plugin makes them.';
  if (kind !== 'fields' && !Array.isArray(types)) return 'body.types must be a list of media types.';
  return undefined;
}

const isOneOf = (known: readonly unknown[], value: unknown): boolean => known.includes(value);

const isSchema = (value: unknown): boolean =>
  typeof (Object(value) as { safeParse?: unknown }).safeParse === 'function';
