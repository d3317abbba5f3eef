import type { Directory, MailUser } from '../../core/contracts/directory.js';
import type { AttemptLimiter } from '../../core/auth/rate.js';
import type { UserDirectory } from './directory.js';

export interface SignInAttempt {
  readonly username: string;
  readonly password: string;
  /** IP address of the client. */
  readonly address: string;
  /** Neither counted nor refused for earlier failures. */
  readonly exempt: boolean;
}

export type SignIn =
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

  /** Replaces the limiter. */
  use(limiter: AttemptLimiter): void {
    this.#limiter = limiter;
  }

  /** Throws `unavailable` when too many passwords are being checked; that does not count as a failure. */
  async attempt(attempt: SignInAttempt): Promise<SignIn> {
    const key = `${this.#directory.canonical(attempt.username)} ${attempt.address}`;
    const mine = this.#inTurn(this.#turns.get(key), key, attempt);
    this.#turns.set(key, mine);
    try {
      return await mine;
    } finally {
      if (this.#turns.get(key) === mine) this.#turns.delete(key);
    }
  }

  async #inTurn(before: Promise<SignIn> | undefined, key: string, attempt: SignInAttempt): Promise<SignIn> {
    await before?.catch(() => undefined);
    return this.#decide(key, attempt);
  }

  async #decide(key: string, { username, password, exempt }: SignInAttempt): Promise<SignIn> {
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
