import { problem, type Problem } from '../problem.js';
import type { Method } from './endpoint.js';
import { allowed, type Found, type RouteTable } from './route-table.js';

/** What is said to a method that an address is not for: what the others do there, and a page that may be meant. */
export function wrongMethod(method: Method, path: string, found: Found, table: RouteTable): Problem {
  const { allow, routes } = found;
  const ways = [...routes].map(([other, { route }]) => `${other}: ${sentence(route.endpoint.summary)}`);
  const page = table.pageNear(path)?.endpoint;
  return problem('method-not-allowed', {
    detail: `This address is not for ${method}. ${ways.join(' ')}`,
    headers: { Allow: allow },
    ...(page !== undefined && { instead: [{ href: page.path, title: page.summary }] }),
  });
}

/**
 * The routes of that very path, where another one with a parameter in it has found nothing by its name: `/queue/retry` is for POST, and no
 * entry called retry.
 */
export function namesake(path: string, method: Method, found: Found): Found | undefined {
  const routes = new Map([...found.routes].filter(([, { route }]) => route.endpoint.path === path));
  return routes.size === 0 || routes.has(method) ? undefined : { routes, allow: allowed([...routes.keys()]) };
}

const sentence = (summary: string): string => (/[.!?]$/.test(summary) ? summary : `${summary}.`);
