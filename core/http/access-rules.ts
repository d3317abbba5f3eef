import koaBasicAuth from 'koa-basic-auth';
import { startError } from '../problem.js';
import type { Access, Endpoint, Method } from './endpoint.js';
import type { Context, Next } from './exchange.js';
import type { AccessRule } from './options.js';

/** How a request to an endpoint is let in. */
export type Gate =
  | { readonly kind: 'access'; readonly access: Access }
  | { readonly kind: 'own'; readonly realm: string; readonly guard: (ctx: Context, next: Next) => unknown };

interface CompiledRule {
  readonly method: string | undefined;
  readonly pattern: RegExp;
  readonly gate: Gate;
}

/** The access rules of the configuration, in their order. */
export class AccessRules {
  readonly #rules: readonly CompiledRule[];

  constructor(rules: readonly AccessRule[]) {
    this.#rules = rules.map(compile);
  }

  /**
   * The gate of the first rule that matches the path, else the access that the endpoint declares.
   *
   * @param encoded path as it came in; rules match what it means
   */
  gate(method: Method, encoded: string, endpoint: Pick<Endpoint, 'access'>): Gate {
    if (this.#rules.length === 0) return { kind: 'access', access: endpoint.access };
    const path = decodeURIComponent(encoded);
    const rule = this.#rules.find((one) => (one.method ?? method) === method && one.pattern.test(path));
    return rule?.gate ?? { kind: 'access', access: endpoint.access };
  }
}

/** Letters match in any case: a rule that restricts a domain must also hold for its other spellings. */
function compile(rule: AccessRule): CompiledRule {
  const [first = '', second] = rule.match.split(' ');
  const path = second ?? first;
  const source = path
    .split('*')
    .map((literal) => literal.replace(/[.+?^${}()|[\]\\]/g, '\\$&'))
    .join('.*');
  return {
    method: second === undefined ? undefined : first,
    pattern: new RegExp(`^${source}$`, 'isu'),
    gate: gateOf(rule),
  };
}

function gateOf(rule: AccessRule): Gate {
  if (rule.public === true) return { kind: 'access', access: 'public' };
  if (rule.role !== undefined) return { kind: 'access', access: rule.role };
  const { username, password, realm = 'Postern' } = rule;
  // koa-basic-auth lets everybody in when one of them is empty.
  if (username === undefined || username === '' || password === undefined || password === '') {
    throw startError(`http.access: the rule for ${rule.match} needs a username and a password that are not empty.`);
  }
  const guard = koaBasicAuth({ name: username, pass: password }) as (ctx: Context, next: Next) => unknown;
  return { kind: 'own', realm, guard };
}
