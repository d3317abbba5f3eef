import type { Hook } from '../../core/pipeline/hook.js';
import type { SmtpSession } from '../../core/pipeline/transaction.js';
import { defer, next } from '../../core/pipeline/verdict.js';
import type { UserDirectory } from './directory.js';

type Credentials = Pick<UserDirectory, 'credentialOf'>;

/** SMTP sessions whose users have signed in here, and with what. Those of other plugins' users are not among them. */
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

  /** False when the user has been removed or disabled since then, or has another password. */
  stillCounts(session: SmtpSession): boolean {
    const known = this.#credentials.get(session);
    return known === undefined || known.credential === this.#directory.credentialOf(known.username);
  }
}

/** A session that was open when its user was locked out sends nothing more. What it has begun to send is taken. */
export function lockedOutHook(sessions: SignedInSessions): Hook<'mailFrom'> {
  return ({ transaction }) =>
    sessions.stillCounts(transaction.session) ? next() : defer(421, '4.7.0', 'Connect and sign in again');
}
