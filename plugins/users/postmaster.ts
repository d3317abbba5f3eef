import type { Clock } from '../../core/clock.js';
import type { Configuration } from '../../core/contracts/server.js';
import { startError } from '../../core/problem.js';
import { postmasterName } from './directory.js';
import type { UsersSettings } from './options.js';
import type { UserRecords } from './user-records.js';
import { isUsername, partsOf } from './user.js';

export interface PostmasterInput {
  readonly settings: Pick<UsersSettings, 'postmaster'>;
  readonly configuration: Pick<Configuration, 'domains'>;
  readonly clock: Pick<Clock, 'now'>;
}

/**
 * Ensures that mail for postmaster has a recipient (RFC 5321 §4.5.1): creates a user without a password if there is
 * none. This creates `users.json` at the first start.
 */
export async function ensurePostmaster(records: UserRecords, input: PostmasterInput): Promise<void> {
  const { settings, configuration, clock } = input;
  const username = postmasterName(settings, configuration.domains);
  if (records.named(username) !== undefined) return;
  if (!isUsername(username) || !configuration.domains.includes(partsOf(username).domain)) {
    const domains = configuration.domains.join(', ');
    throw startError(`plugins.users.postmaster: ${username} must be a mailbox in one of the domains ${domains}.`);
  }
  const createdAt = new Date(clock.now()).toISOString();
  try {
    await records.add({ username, passwordHash: null, aliases: [], quota: null, disabled: false, createdAt });
  } catch (error) {
    // Created concurrently.
    if (records.named(username) === undefined) throw error;
  }
}
