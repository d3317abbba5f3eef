import { LRUCache } from 'lru-cache';
import type { z } from 'zod';
import type { AnyEndpoint, BodyDeclaration, Endpoint, Representation } from './endpoint.js';
import { type Mark, markOf } from '../watchdog/running-code.js';
import { refuseBadEndpoint } from './endpoint-check.js';
import { FieldShape } from './field-shape.js';
import type { Views } from './views.js';

/** The handler's side of an endpoint, its types forgotten: what was validated is what it takes. */
export type OpenEndpoint = Endpoint;

/** An endpoint with everything that can be worked out before a request comes. */
export interface Route {
  readonly plugin: string;
  readonly endpoint: OpenEndpoint;
  readonly mark: Mark;
  readonly template: string | undefined;
  readonly produces: readonly Representation[];
  readonly fallback: Representation;
  /** What was agreed for an `Accept` that has been seen: clients say the same again and again. */
  readonly agreed: LRUCache<string, Representation>;
  readonly query: FieldShape;
  readonly form: FieldShape;
  /** In the order of preference for this path: literal segments before parameters. */
  readonly specificity: string;
}

export function compileRoute(plugin: string, declared: AnyEndpoint, views: Views): Route {
  const endpoint = declared as unknown as OpenEndpoint;
  refuseBadEndpoint(plugin, endpoint);
  const { view, path } = endpoint;
  const produces: readonly Representation[] = endpoint.produces ?? (view === undefined ? ['json'] : ['html', 'json']);
  const usual = produces.includes('json') ? 'json' : (produces[0] ?? 'json');
  return {
    plugin,
    endpoint,
    mark: markOf(plugin, `${endpoint.method} ${path}`),
    template: view === undefined ? undefined : views.resolve(plugin, view),
    produces,
    fallback: endpoint.fallback ?? usual,
    agreed: new LRUCache({ max: 20 }),
    query: new FieldShape(endpoint.query),
    form: new FieldShape(schemaOf(endpoint.body)),
    specificity: path.replaceAll(/\{[^}]*\}/g, '~'),
  };
}

export function schemaOf(body: BodyDeclaration<z.ZodType> | undefined): z.ZodType | undefined {
  return body === undefined || body.kind === 'raw' ? undefined : body.schema;
}
