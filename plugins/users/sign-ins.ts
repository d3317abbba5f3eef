import type { AttemptLimiter } from '../../core/auth/rate.js';
import type { Directory, MailUser } from '../../core/contracts/directory.js';
import type { Hook } from '../../core/pipeline/hook.js';
import type { SmtpSession } from '../../core/pipeline/transaction.js';
import { defer, next } from '../../core/pipeline/verdict.js';
import type { PluginContext } from '../../core/plugin.js';
import type { UserDirectory } from './directory.js';

export interface PasswordAttempt {
  readonly username: string;
  readonly password: string;
  /** IP address of the client. */
  readonly address: string;
  /** Neither counted nor refused for earlier failures. */
  readonly exempt: boolean;
}

type SignIn =
  | { readonly outcome: 'accepted'; readonly user: MailUser }
  | { readonly outcome: 'refused' }
  /** Too many failures; `retryAfter` in seconds. */
  | { readonly outcome: 'limited'; readonly retryAfter: number };

type Credentials = Pick<Directory, 'authenticate'> & Pick<UserDirectory, 'canonical'>;

/**
 * Sign-ins with a limit of failures for each user and address, whether the user exists or not, in any spelling of the
 * name.
 *
 * Attempts for the same pair run one after the other: a thousand concurrent guesses are counted one by one, and of
 * concurrent correct ones only the first is hashed.
 */
export class SignIns {
  readonly #directory: Credentials;
  #limiter: AttemptLimiter;
  /** The last running attempt of each pair. */
  readonly #turns = new Map<string, Promise<SignIn>>();

  constructor(directory: Credentials, limiter: AttemptLimiter) {
    this.#directory = directory;
    this.#limiter = limiter;
  }

  /** Failures by user and address. */
  get attempts(): AttemptLimiter {
    return this.#limiter;
  }

  /** Replaces the limiter. */
  use(limiter: AttemptLimiter): void {
    this.#limiter = limiter;
  }

  /** Throws `unavailable` when too many passwords are being checked; that does not count as a failure. */
  async attempt(attempt: PasswordAttempt): Promise<SignIn> {
    const key = `${this.#directory.canonical(attempt.username)} ${attempt.address}`;
    const mine = this.#inTurn(this.#turns.get(key), key, attempt);
    this.#turns.set(key, mine);
    try {
      return await mine;
    } finally {
      if (this.#turns.get(key) === mine) this.#turns.delete(key);
    }
  }

  async #inTurn(before: Promise<SignIn> | undefined, key: string, attempt: PasswordAttempt): Promise<SignIn> {
    await before?.catch(() => undefined);
    return this.#decide(key, attempt);
  }

  async #decide(key: string, { username, password, exempt }: PasswordAttempt): Promise<SignIn> {
    const retryAfter = exempt ? 0 : this.#limiter.retryAfter(key);
    if (retryAfter > 0) return { outcome: 'limited', retryAfter };
    const user = await this.#directory.authenticate(username, password);
    if (user !== undefined) {
      this.#limiter.forget(key);
      return { outcome: 'accepted', user };
    }
    if (!exempt) this.#limiter.record(key);
    return { outcome: 'refused' };
  }
}

/**
 * SMTP sessions that signed in as users of this plugin, with their credentials. Users of other plugins are not
 * included.
 */
export class SignedInSessions {
  readonly #directory: Pick<UserDirectory, 'credentialOf'>;
  readonly #credentials = new WeakMap<
    SmtpSession,
    { readonly username: string; readonly credential: string | undefined }
  >();

  constructor(directory: Pick<UserDirectory, 'credentialOf'>) {
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

type SignInResult = SignIn['outcome'] | 'unavailable';
export type CountSignIn = (via: 'smtp' | 'http', result: SignInResult) => void;

/** Counts sign-ins and exports the number of users. */
export function usersMetrics(metrics: PluginContext['metrics'], users: () => number): CountSignIn {
  const signIns = metrics.counter('authentications_total', 'Sign-ins of mail users, by protocol and result', [
    'via',
    'result',
  ]);
  metrics.gauge('users', 'Mail users, those that are disabled included', [], (gauge) => gauge.set(users()));
  return (via, result) => signIns.inc({ via, result });
}
