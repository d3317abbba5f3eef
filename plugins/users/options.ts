import { z } from 'zod';

export const UsersOptions = z.strictObject({
  file: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, 'a file name without a folder, such as users.json')
    .default('users.json')
    .describe('Name of the file with the users, in the data folder.'),
  catchAll: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe(
      'User who gets the mail for addresses of the local domains that no user has, as local@domain; null refuses such mail.',
    ),
  postmaster: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe(
      'User who gets the mail for postmaster of every local domain (RFC 5321 §4.5.1), as local@domain; null means postmaster of the first domain. Made without a password when there is no such user.',
    ),
  plusDetail: z
    .string()
    .regex(/^[+=_.-]?$/, 'one of + = _ . - or empty')
    .default('+')
    .describe(
      'Separator behind which the local part is free: with +, anna+lists reaches anna, unless a user has exactly this address. Empty turns it off.',
    ),
  attempts: z
    .strictObject({
      limit: z
        .int()
        .min(1)
        .max(10_000)
        .default(10)
        .describe(
          'Failed sign-ins of one user from one address within the window; beyond them further ones are refused.',
        ),
      windowSeconds: z.int().min(1).max(86_400).default(600).describe('Length of the window, in seconds.'),
      maxKeys: z
        .int()
        .min(100)
        .max(1_000_000)
        .default(10_000)
        .describe('Pairs of user and address that are counted at the same time, at most.'),
    })
    .prefault({})
    .describe('Limits of failed sign-ins, over SMTP and over POST /users/authenticate together.'),
  senders: z
    .enum(['own', 'domain', 'any'])
    .default('own')
    .describe(
      'Addresses that a signed-in user may send as: their own with aliases and +detail, all of the domains of these, or any. The null sender is allowed.',
    ),
  rememberSeconds: z
    .int()
    .min(0)
    .max(3600)
    .default(60)
    .describe(
      'How long a verified sign-in is remembered so that the next one needs no password hash, in seconds; 0 verifies always.',
    ),
});
export type UsersSettings = z.output<typeof UsersOptions>;
