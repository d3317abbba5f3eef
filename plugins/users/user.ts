import { z } from 'zod';
import type { MailUser } from '../../core/contracts/directory.js';
import { parseAddress } from '../../core/mime/address.js';
import { isPasswordHash } from '../../core/auth/password.js';
import { isAlias, isUsername } from './username.js';

/** A user as `users.json` keeps it. */
export const UserRecord = z.strictObject({
  username: z.string().refine(isUsername, 'must be local@domain in lower case'),
  /** Null: nobody can sign in as this user. */
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
export type UserRecord = Readonly<z.output<typeof UserRecord>>;

/** The whole file: every name, be it of a user or an alias, belongs to one user. */
export const UsersFile = z.strictObject({ users: z.array(UserRecord) }).superRefine(({ users }, context) => {
  const seen = new Set<string>();
  for (const [index, { username, aliases }] of users.entries()) {
    for (const name of [username, ...aliases]) {
      if (seen.has(name)) context.addIssue({ code: 'custom', path: ['users', index], message: `${name} occurs twice` });
      seen.add(name);
    }
  }
});
export type UsersFile = z.output<typeof UsersFile>;

/** Records never change: a user who changes has a new one. */
const shown = new WeakMap<UserRecord, MailUser>();

/** The user as other plugins see it: nothing of the password. */
export function asMailUser(record: UserRecord): MailUser {
  const known = shown.get(record);
  if (known !== undefined) return known;
  const { username, aliases, quota, disabled } = record;
  const user = Object.freeze({ username, address: parseAddress(username), aliases, quota, disabled });
  shown.set(record, user);
  return user;
}
