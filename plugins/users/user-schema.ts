import { z } from 'zod';
import { maxPasswordCharacters, minPasswordCharacters } from '../../core/auth/password.js';

/** What requests about users hold and what they are answered. */

/** Far more than a password may have, so that the rule can say so; what is beyond costs nothing. */
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
