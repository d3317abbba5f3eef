import type { AccessRules, Gate } from './access-rules.js';
import type { EndpointDescription } from './endpoint.js';
import { accessLabel, operationId } from './openapi.js';
import { schemaOf, type Route } from './route.js';

/** The gate as far as it can be told without a request: rules that name a value of a parameter are left out. */
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

/** A call that works when it is pasted, once the braces are filled in; it asks for JSON where curl would be given a page. */
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
