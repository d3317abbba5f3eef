import { parseDomain } from '../../core/mime/address.js';
import { type InvalidPlace, isProblem, problem, type Problem } from '../../core/problem.js';

/**
 * Names of users are `local@domain` in lower case.
 *
 * Letters of local parts count as equal in either case, for ASCII only: `Anna@example.org` is anna's mailbox. RFC 5321 §2.4
 * leaves that to the host of the mailbox. The local part is a folder name too, so it is taken from an allow-list.
 */
const userShape = /^(?=.{1,64}$)[a-z0-9_+=-]+(?:\.[a-z0-9_+=-]+)*$/;
/** An alias is no folder, so all of RFC 5321's dot-string will do, but for what old hosts took for a route. */
const aliasShape = /^(?=.{1,64}$)[a-z0-9#$&'*+/=?^_`{|}~-]+(?:\.[a-z0-9#$&'*+/=?^_`{|}~-]+)*$/;

interface Parts {
  readonly local: string;
  readonly domain: string;
}

/** The name with its letters as we keep them. Only ASCII is folded: a Kelvin sign must not become a `k`. */
export function lowerCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

export function partsOf(name: string): Parts {
  const at = name.lastIndexOf('@');
  return { local: name.slice(0, Math.max(at, 0)), domain: name.slice(at + 1) };
}

/** Users are listed by domain, then by local part; a blank sorts before every character of a name. */
export function orderOf(username: string): string {
  const { local, domain } = partsOf(username);
  return `${domain} ${local}`;
}

export function isUsername(text: string): boolean {
  const { local, domain } = partsOf(text);
  return userShape.test(local) && isDomain(domain);
}

export function isAlias(text: string): boolean {
  const { local, domain } = partsOf(text);
  return aliasShape.test(local) && isDomain(domain);
}

function isDomain(text: string): boolean {
  try {
    return parseDomain(text) === text;
  } catch {
    return false;
  }
}

/** What somebody typed as the name to sign in with or to look up; without a domain, the first one is meant. */
export function canonicalUsername(typed: string, domains: readonly string[]): string {
  const name = lowerCase(typed);
  return name.includes('@') ? name : `${name}@${domains[0] ?? 'localhost'}`;
}

/** The name of a user to be made. Throws `invalid`. */
export function newUsername(typed: string, domains: readonly string[]): string {
  const name = canonicalUsername(typed, domains);
  if (!isUsername(name)) {
    throw invalid(
      'username',
      'A user is named local@domain; the local part is 1 to 64 letters, digits or . _ + = -, with no dot at an end or beside another.',
    );
  }
  return inDomains(name, 'username', domains);
}

/** The aliases of a user in their order, each once. Throws `invalid`. */
export function newAliases(typed: readonly string[], username: string, domains: readonly string[]): readonly string[] {
  const { domain } = partsOf(username);
  const names = typed.map((alias) => canonicalUsername(alias, [domain]));
  const wrong = names.find((name) => !isAlias(name));
  if (wrong !== undefined)
    throw invalid('aliases', 'An alias is an address, local@domain, in ASCII and without quotes.');
  return [...new Set(names)].filter((name) => name !== username).map((name) => inDomains(name, 'aliases', domains));
}

function inDomains(name: string, field: string, domains: readonly string[]): string {
  if (domains.includes(partsOf(name).domain)) return name;
  throw invalid(field, `The domain must be one of this server: ${domains.join(', ')}.`);
}

export function invalid(field: string, message: string): Problem {
  return problem('invalid', { detail: message, errors: [{ pointer: `/${field}`, message }] });
}

/** What the checks make of their fields. Those that throw `invalid` become one problem, with all that is wrong. */
export function allValid<T extends Readonly<Record<string, unknown>>>(checks: {
  readonly [K in keyof T]: () => T[K];
}): T {
  const errors: InvalidPlace[] = [];
  const entries = Object.entries<() => unknown>(checks).map(([name, check]): [string, unknown] => {
    try {
      return [name, check()];
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'invalid') throw error;
      errors.push(...(error.details.errors ?? []));
      return [name, undefined];
    }
  });
  const [first] = errors;
  if (first !== undefined) throw problem('invalid', { detail: first.message, errors });
  return Object.fromEntries(entries) as T;
}
