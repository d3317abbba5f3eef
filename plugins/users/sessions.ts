import type { Hook } from '../../core/pipeline/hook.js';
import type { SmtpSession } from '../../core/pipeline/transaction.js';
import { defer, next } from '../../core/pipeline/verdict.js';
import type { UserDirectory } from './directory.js';

type Credentials = Pick<UserDirectory, 'credentialOf'>;

/**
 * SMTP sessions that signed in as users of this plugin, with their credentials. Users of other plugins are not
 * included.
 */
export class SignedInSessions {
  readonly #directory: Credentials;
  readonly #credentials = new WeakMap<
    SmtpSession,
    { readonly username: string; readonly credential: string | undefined }
  >();

  constructor(directory: Credentials) {
    this.#directory = directory;
  }

  begin(session: SmtpSession, username: string): void {
    this.#credentials.set(session, { username, credential: this.#directory.credentialOf(username) });
  }

  /** False when the user has been removed or disabled, or has another password. */
  stillCounts(session: SmtpSession): boolean {
    const known = this.#credentials.get(session);
    return known === undefined || known.credential === this.#directory.credentialOf(known.username);
  }
}

/** A session whose user was locked out may not send. A message that is already being sent is accepted. */
export function lockedOutHook(sessions: SignedInSessions): Hook<'mailFrom'> {
  return ({ transaction }) =>
    sessions.stillCounts(transaction.session) ? next() : defer(421, '4.7.0', 'Connect and sign in again');
}
