import type { EndpointDescription } from '../../core/contracts/server.js';

type Mounted = Pick<EndpointDescription, 'method' | 'path' | 'access'>;

interface Rule {
  readonly match: RegExp;
  readonly access: readonly string[];
}

/**
 * Who may reach what, as docs/http-api.md says it; the first match counts. An endpoint that no rule speaks of fails the
 * test: whoever adds one decides here who may reach it.
 */
const policy: readonly Rule[] = [
  { match: /^GET \/(?:health|favicon\.ico)$/, access: ['public'] },
  { match: /^GET \/\.well-known\//, access: ['public'] },
  { match: /^(?:GET|POST) \/sign-(?:in|out)$/, access: ['public'] },
  { match: /^(?:GET \/sessions|POST \/sessions\/end)$/, access: ['read'] },
  { match: /^GET \/(?:docs|openapi\.json|health\/extended|metrics(?:\/\w+)?|search)?$/, access: ['read'] },
  { match: /^(?:GET|POST) \/pipeline(?:\/explain)?$/, access: ['read', 'admin'] },
  { match: /^GET \/trace(?:\/\{id\})?$/, access: ['operate'] },
  { match: /^\w+ \/store(?:\/|$)/, access: ['operate'] },
  { match: /^GET \/users(?:\/\{username\}\/exists)?$/, access: ['read'] },
  { match: /^POST \/users\/authenticate$/, access: ['operate'] },
  { match: /^\w+ \/users(?:\/\{username\})?$/, access: ['admin'] },
  {
    match: /^GET \/client\/queue(?:\/list|\/statistics|\/quarantine|\/\{uid\}|\/jobs|\/jobs\/\{id\})?$/,
    access: ['read'],
  },
  { match: /^GET \/client\/(?:destinations|replies)/, access: ['read'] },
  { match: /^GET \/(?:proxy|lmtp)$/, access: ['read'] },
  { match: /^POST \/client\/queue\/recover$/, access: ['admin'] },
  { match: /^\w+ \/client\//, access: ['operate'] },
  { match: /^GET \/config\/sync\/status$/, access: ['read', 'admin'] },
  { match: /^GET \/(?:acme|tls-reports|cluster(?:\/mailboxes\/\{username\})?)$/, access: ['read'] },
  { match: /^\w+ \/(?:config|system|logs|audit|sign-ins|accounts|acme|cluster)(?:\/|$)/, access: ['admin'] },
];

/** A line for each endpoint that has no rule, or another access than its rule says. */
export function breaches(endpoints: readonly Mounted[]): readonly string[] {
  return endpoints.flatMap(({ method, path, access }) => {
    const name = `${method} ${path}`;
    const rule = policy.find(({ match }) => match.test(name));
    if (rule === undefined) return [`${name} has no rule`];
    return rule.access.includes(access) ? [] : [`${name} is ${access}, not ${rule.access.join(' or ')}`];
  });
}
