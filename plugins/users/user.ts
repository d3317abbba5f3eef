import { z } from 'zod';
import { isPasswordHash, maxPasswordCharacters, minPasswordCharacters } from '../../core/auth/password.js';
import type { MailUser } from '../../core/contracts/directory.js';
import type { UserRecord } from '../../core/contracts/user-records.js';
import { parseAddress, parseDomain } from '../../core/mime/address.js';
import { type InvalidPlace, isProblem, problem, type Problem } from '../../core/problem.js';

/** A user in `users.json`. */
const StoredUser = z.strictObject({
  username: z.string().refine(isUsername, 'must be local@domain in lower case'),
  /** Null: the user cannot sign in. */
  passwordHash: z
    .string()
    .refine(isPasswordHash, 'must be scrypt$N$r$p$salt$hash, as postern user passwd writes it')
    .nullable(),
  aliases: z.array(z.string().refine(isAlias, 'must be local@domain in lower case')),
  /** Bytes. */
  quota: z.int().nonnegative().nullable(),
  disabled: z.boolean(),
  createdAt: z.iso.datetime(),
});

/** The whole file: each name, of a user or an alias, belongs to one user. */
export const UsersFile = z.strictObject({ users: z.array(StoredUser) }).superRefine(({ users }, context) => {
  const seen = new Set<string>();
  for (const [index, { username, aliases }] of users.entries()) {
    for (const name of [username, ...aliases]) {
      if (seen.has(name)) context.addIssue({ code: 'custom', path: ['users', index], message: `${name} occurs twice` });
      seen.add(name);
    }
  }
});
export type UsersFile = z.output<typeof UsersFile>;

const shown = new WeakMap<UserRecord, MailUser>();

/** The user for other plugins, without the password. */
export function asMailUser(record: UserRecord): MailUser {
  const known = shown.get(record);
  if (known !== undefined) return known;
  const { username, aliases, quota, disabled } = record;
  const user = Object.freeze({ username, address: parseAddress(username), aliases, quota, disabled });
  shown.set(record, user);
  return user;
}

/**
 * User names are `local@domain` in lower case.
 *
 * Local parts ignore the case of ASCII letters: `Anna@example.org` is anna's mailbox. RFC 5321 §2.4 leaves that to the
 * host of the mailbox. The local part is also a folder name, so only allowed characters pass.
 */
const userShape = /^(?=.{1,64}$)[a-z0-9_+=-]+(?:\.[a-z0-9_+=-]+)*$/;
/** An alias is not a folder name, so the full dot-string of RFC 5321 is allowed, except source routes. */
const aliasShape = /^(?=.{1,64}$)[a-z0-9#$&'*+/=?^_`{|}~-]+(?:\.[a-z0-9#$&'*+/=?^_`{|}~-]+)*$/;

interface Parts {
  readonly local: string;
  readonly domain: string;
}

/** Folds ASCII only: a Kelvin sign must not become a `k`. */
export function lowerCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

export function partsOf(name: string): Parts {
  const at = name.lastIndexOf('@');
  return { local: name.slice(0, Math.max(at, 0)), domain: name.slice(at + 1) };
}

/** Sort key: domain, then local part; a space sorts before every character of a name. */
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

/** Canonical form of an entered name; without a domain, the first one is used. */
export function canonicalUsername(typed: string, domains: readonly string[]): string {
  const name = lowerCase(typed);
  return name.includes('@') ? name : `${name}@${domains[0] ?? 'localhost'}`;
}

/** Validates the name of a new user. Throws `invalid`. */
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

/** Validates aliases; sorted, without duplicates. Throws `invalid`. */
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

/** Runs all checks. Errors `invalid` are collected into one problem. */
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

/** Far above the password limit, so that the rule gives the error; longer input is cut off early. */
const Password = z
  .string()
  .max(4 * maxPasswordCharacters)
  .describe(
    `At least ${minPasswordCharacters} characters, at most ${maxPasswordCharacters}, and none of the common ones.`,
  );

const Aliases = z
  .union([z.array(z.string().max(320)).max(200), z.string().max(20_000)])
  .transform((given) => (typeof given === 'string' ? given.split(/[\s,;]+/).filter((alias) => alias !== '') : given))
  .describe('Further addresses, as a list, or as text with one a line.');

const Quota = z
  .union([z.int().min(1).max(Number.MAX_SAFE_INTEGER), z.string().max(20)])
  .nullable()
  .describe('Bytes, or a size such as 500 MB; null means no limit.');

const Disabled = z.boolean().describe('A disabled user cannot sign in, and mail to the mailbox is refused.');

export const NewUserBody = z.strictObject({
  username: z.string().min(1).max(320).describe('local@domain; without a domain the first one is meant.'),
  password: Password.nullable().optional().describe('Without one nobody can sign in as this user.'),
  aliases: Aliases.optional(),
  quota: Quota.optional(),
  disabled: Disabled.optional(),
});

export const UserChangeBody = z.strictObject({
  password: Password.optional(),
  aliases: Aliases.optional(),
  quota: Quota.optional(),
  disabled: Disabled.optional(),
});

export const CredentialsBody = z.strictObject({
  username: z.string().max(320),
  password: z.string().max(1024),
});

export const UserAnswer = z.object({
  username: z.string(),
  domain: z.string(),
  aliases: z.array(z.string()),
  quota: z.number().nullable().describe('Bytes.'),
  disabled: z.boolean(),
  hasPassword: z.boolean().nullable().describe('Null where the users come from another plugin.'),
  createdAt: z.string().nullable().describe('ISO 8601; null where the users come from another plugin.'),
});

/** Bytes of an entered quota: a number, or a size such as `1.5 GB`. Throws `invalid`. */
export function quotaOf(given: number | string | null): number | null {
  if (typeof given !== 'string') return given;
  const bytes = bytesOf(given);
  if (bytes === undefined) throw invalid('quota', 'The quota is a number of bytes, or a size such as 500 MB.');
  return bytes;
}

const steps: Readonly<Record<string, number>> = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** `1.5 GB` → bytes, in steps of 1024 as pages show them. */
function bytesOf(text: string): number | undefined {
  const [, count, unit = ''] = /^\s*(\d{1,9}(?:\.\d{1,3})?)\s*([kmgt]?)i?b?\s*$/i.exec(text) ?? [];
  const bytes = Math.round(Number(count) * (steps[unit.toLowerCase()] ?? Number.NaN));
  return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}
