import { z } from 'zod';
import { maxPasswordCharacters, minPasswordCharacters } from '../../../core/auth/password.js';
import type { Directory } from '../../../core/contracts/directory.js';
import type { SignInEntry, SignInHistory } from '../../../core/contracts/sign-in-history.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import type { Account } from '../../../core/contracts/accounts.js';
import { namesTag } from '../../../core/http/response.js';
import { problem } from '../../../core/problem.js';
import { type LocalRoster, type Roster, type UserDetails, type UserExpectation, userVersion } from '../roster.js';
import type { CountSignIn, SignIns } from '../sign-ins.js';
import { CredentialsBody, lowerCase, NewUserBody, orderOf, partsOf, UserAnswer, UserChangeBody } from '../user.js';

/** Dependencies of the read-only endpoints, for users of any source. */
interface LookingDeps {
  readonly roster: Pick<Roster, 'list'>;
  readonly directory: Pick<Directory, 'source' | 'find'>;
  readonly domains: () => readonly string[];
  readonly signIns: SignIns;
  readonly count: CountSignIn;
  readonly history: SignInHistory;
  /** Users can be changed here. */
  readonly editable: boolean;
}

interface UserRouteDeps extends LookingDeps {
  readonly roster: LocalRoster;
}

const group = 'Users';
const usersOnAPage = 100;
const UserParams = z.object({ username: z.string().min(1).max(320) });
const passwordRule = { shortest: minPasswordCharacters, longest: maxPasswordCharacters };

export function userEndpoints(deps: UserRouteDeps): readonly AnyEndpoint[] {
  return [...lookingEndpoints(deps), addUser(deps), userPage(deps), changeUser(deps), removeUser(deps)];
}

export function lookingEndpoints(deps: LookingDeps): readonly AnyEndpoint[] {
  return [listUsers(deps), userExists(deps), authenticate(deps)];
}

const listUsers = ({ roster, directory, domains, editable }: LookingDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/users',
    summary: 'Mail users: their names, for admins with details',
    group,
    access: 'read',
    query: z.object({
      q: z.string().max(320).optional().describe('Part of a name or alias'),
      limit: z.int().min(1).max(1000).optional().describe('All if absent; pages show 100'),
      cursor: z.string().max(500).optional(),
    }),
    answer: z.object({
      source: z.string(),
      count: z.int().describe('Users that the filter leaves'),
      users: z.array(z.string()),
      nextCursor: z.string().nullable(),
      details: z.array(UserAnswer).optional().describe('For role admin'),
    }),
    view: 'list.njk',
    cache: 'no-store',
    async handle({ query, request }) {
      const html = request.representation === 'html';
      const limit = query.limit ?? (html ? usersOnAPage : undefined);
      const admin = isAdmin(request.account);
      const list = pageOfUsers(await roster.list(), { ...query, limit }, admin);
      const { source } = directory;
      if (!html) return listAnswer(source, list, admin);
      const { q = '' } = query;
      return {
        source,
        list,
        admin: admin && editable,
        q,
        listPath: request.listPath,
        domains: domains(),
        passwordRule,
      };
    },
  });

/** Details are for admins: a role that may list names does not see disabled users or aliases. */
function listAnswer(source: string, { items, total, nextCursor }: UserPage, admin: boolean) {
  const answer = { source, count: total, users: items.map(({ username }) => username), nextCursor };
  return admin ? { ...answer, details: items } : answer;
}

const userExists = ({ directory }: LookingDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/users/{username}/exists',
    summary: 'Whether a mail user of that name exists',
    group,
    access: 'read',
    params: UserParams,
    answer: z.object({ source: z.string(), username: z.string(), exists: z.boolean() }),
    cache: 'no-store',
    handle: async ({ params: { username } }) => ({
      source: directory.source,
      username,
      exists: (await directory.find(username)) !== undefined,
    }),
  });

const authenticate = ({ directory, signIns, count, history }: LookingDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/users/authenticate',
    summary: 'Check the password of a mail user; 429 after repeated failures',
    group,
    access: 'operate',
    changes: false,
    body: { kind: 'fields', schema: CredentialsBody, limit: 16 * 1024 },
    answer: z.object({ source: z.string(), username: z.string(), authenticated: z.boolean() }),
    cache: 'no-store',
    async handle({ body: { username, password }, request }) {
      const { remoteAddress: address } = request;
      const result = await signIns.attempt({ username, password, address, exempt: false });
      count('http', result.outcome);
      const name = result.outcome === 'accepted' ? result.user.username : username;
      const shown = result.outcome === 'limited' ? 'deferred' : result.outcome;
      history.record({ username: name, address, protocol: 'authenticate', result: shown });
      if (result.outcome === 'limited') throw tooManyFailures(result.retryAfter);
      return { source: directory.source, username, authenticated: result.outcome === 'accepted' };
    },
  });

function tooManyFailures(retryAfter: number) {
  return problem('too-many-requests', {
    detail: 'Too many failed sign-ins for this user.',
    headers: { 'Retry-After': String(retryAfter) },
  });
}

const addUser = ({ roster }: UserRouteDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/users',
    success: [201],
    summary: 'Add a mail user',
    group,
    access: 'admin',
    body: { kind: 'fields', schema: NewUserBody },
    answer: UserAnswer,
    cache: 'no-store',
    async handle({ body }) {
      const user = await roster.add({ ...body, password: body.password ?? undefined });
      const { username } = user;
      return respond({
        status: 201,
        location: pathOf(user),
        model: user,
        notice: `${username} was added.`,
        audit: { action: 'add user', selector: { username }, counts: { added: 1 } },
      });
    },
  });

/** Sign-ins that the page of a user shows. */
const shownSignIns = 10;

const userPage = ({ roster, domains, history }: UserRouteDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/users/{username}',
    conditions: ['If-None-Match'],
    summary: 'One mail user: aliases, quota, state',
    group,
    access: 'admin',
    params: UserParams,
    answer: UserAnswer,
    view: 'user.njk',
    cache: 'no-store',
    handle: async ({ params, request }) => {
      const user: PageUser = roster.get(params.username);
      if (request.representation !== 'html') return respond({ model: user, etag: userVersion(user) });
      const { items } = await history.find({ username: user.username, limit: shownSignIns });
      const etag = `${userVersion(user)}.${items[0]?.last ?? ''}.${items[0]?.count ?? 0}`;
      return respond({ model: { ...user, signIns: items }, etag });
    },
    page: ({ signIns, ...user }: PageUser) => ({
      user,
      signIns,
      mailbox: `/store/${user.domain}/${encodeURIComponent(partsOf(user.username).local)}`,
      path: pathOf(user),
      domains: domains(),
      passwordRule,
    }),
  });

/** For the page, with the latest sign-ins. */
type PageUser = UserDetails & { readonly signIns?: readonly SignInEntry[] };

const changeUser = ({ roster }: UserRouteDeps) =>
  defineEndpoint({
    method: 'PATCH',
    path: '/users/{username}',
    summary: 'Change the password, aliases, quota or state of a mail user; absent fields stay',
    group,
    access: 'admin',
    params: UserParams,
    body: { kind: 'fields', schema: UserChangeBody },
    answer: UserAnswer,
    cache: 'no-store',
    etag: ({ params }) => userVersion(roster.get(params.username)),
    async handle({ params, body, request }) {
      const user = await roster.change(params.username, body, expectation(request));
      const { username } = user;
      return respond({
        status: 200,
        location: pathOf(user),
        model: user,
        etag: userVersion(user),
        notice: 'password' in body ? `${username} has a new password.` : `${username} was changed.`,
        audit: { action: 'change user', selector: { username, fields: Object.keys(body) }, counts: { changed: 1 } },
      });
    },
  });

const removeUser = ({ roster }: UserRouteDeps) =>
  defineEndpoint({
    method: 'DELETE',
    path: '/users/{username}',
    summary: 'Remove a mail user; the mailbox and its messages stay',
    group,
    access: 'admin',
    params: UserParams,
    answer: z.object({ username: z.string(), removed: z.literal(true) }),
    cache: 'no-store',
    confirm:
      'Remove this user? They can no longer sign in, and mail to their addresses is rejected. The mailbox and its messages stay.',
    etag: ({ params }) => userVersion(roster.get(params.username)),
    async handle({ params, request }) {
      const { username } = roster.get(params.username);
      await roster.remove(username, expectation(request));
      return respond({
        status: 200,
        location: '/users',
        model: { username, removed: true },
        notice: `${username} was removed. The mailbox is still there.`,
        audit: { action: 'remove user', selector: { username }, counts: { removed: 1 } },
      });
    },
  });

const isAdmin = (account: Account | null): boolean => account?.role === 'admin';

const pathOf = ({ username }: UserDetails): string => `/users/${encodeURIComponent(username)}`;

/** Checked again when the change runs: of concurrent changes, only the first finds the expected version. */
function expectation({ ifMatch }: EndpointRequest): UserExpectation | undefined {
  return ifMatch === undefined ? undefined : (user) => namesTag(ifMatch, userVersion(user));
}

interface UserQuery {
  /** Part of a name or alias. */
  readonly q?: string | undefined;
  /** All if absent. */
  readonly limit?: number | undefined;
  /** From an earlier response. */
  readonly cursor?: string | undefined;
}

interface UserPage {
  readonly items: readonly UserDetails[];
  /** Number after the filter. */
  readonly total: number;
  readonly limit: number;
  readonly nextCursor: string | null;
  readonly prevCursor: string | null;
}

/**
 * A page of the users in order of their names. A cursor is the name that a page begins with, so additions do not shift
 * it. Throws the problem `bad-request` for an invalid cursor.
 */
function pageOfUsers(
  users: readonly UserDetails[],
  { q, limit = Infinity, cursor }: UserQuery,
  admin: boolean,
): UserPage {
  const found = q === undefined ? users : users.filter((user) => matches(user, lowerCase(q.trim()), admin));
  const start = startOf(found, cursor);
  const end = Math.min(start + limit, found.length);
  return {
    items: found.slice(start, end),
    total: found.length,
    limit: Math.min(limit, Math.max(found.length, 1)),
    nextCursor: cursorAt(found, end),
    prevCursor: start === 0 ? null : cursorAt(found, Math.max(0, start - limit)),
  };
}

/** Who does not see aliases does not find users by them. */
const matches = ({ username, aliases }: UserDetails, part: string, admin: boolean): boolean =>
  [username, ...(admin ? aliases : [])].some((name) => name.includes(part));

function startOf(users: readonly UserDetails[], cursor: string | undefined): number {
  if (cursor === undefined) return 0;
  const name = Buffer.from(cursor, 'base64url').toString();
  const isOurs = cursorOf(name) === cursor && /^[^\p{Cc}@]+@[^\p{Cc}@]+$/u.test(name);
  if (!isOurs) throw problem('bad-request', { detail: 'That is no cursor of this list.' });
  const start = users.findIndex((user) => orderOf(user.username) >= orderOf(name));
  return start === -1 ? users.length : start;
}

function cursorAt(users: readonly UserDetails[], index: number): string | null {
  const user = users[index];
  return user === undefined ? null : cursorOf(user.username);
}

const cursorOf = (name: string): string => Buffer.from(name).toString('base64url');
