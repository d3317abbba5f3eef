import { problem } from '../../../core/problem.js';
import type { UserDetails } from '../roster.js';
import { lowerCase, orderOf } from '../user.js';

export interface UserQuery {
  /** Part of a name or alias. */
  readonly q?: string | undefined;
  /** All if absent. */
  readonly limit?: number | undefined;
  /** From an earlier response. */
  readonly cursor?: string | undefined;
}

export interface UserPage {
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
export function pageOfUsers(users: readonly UserDetails[], { q, limit = Infinity, cursor }: UserQuery): UserPage {
  const found = q === undefined ? users : users.filter((user) => matches(user, lowerCase(q.trim())));
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

const matches = ({ username, aliases }: UserDetails, part: string): boolean =>
  [username, ...aliases].some((name) => name.includes(part));

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
