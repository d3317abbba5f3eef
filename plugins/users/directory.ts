import { CredentialCache } from '../../core/auth/credential-cache.js';
import { verifyPassword, verifyUnknownUser } from '../../core/auth/password.js';
import type { Clock } from '../../core/clock.js';
import type { Directory, MailUser } from '../../core/contracts/directory.js';
import type { UserRecord, UserRecords } from '../../core/contracts/user-records.js';
import type { Configuration } from '../../core/contracts/server.js';
import type { Address } from '../../core/mime/address.js';
import { isProblem, startError } from '../../core/problem.js';
import type { UsersSettings } from './options.js';
import { asMailUser, canonicalUsername, isUsername, lowerCase, partsOf } from './user.js';

export type LocalDestination = Pick<Address, 'local' | 'domain'>;

/** Maximum number of cached verified sign-ins. */
const rememberedUsers = 10_000;

/** Directory of the users in `users.json`, or of other records. */
export class UserDirectory implements Directory {
  readonly #records: UserRecords;
  readonly #configuration: Pick<Configuration, 'domains' | 'hostname'>;
  readonly #clock: Pick<Clock, 'monotonic'>;
  #settings: UsersSettings;
  #verified: CredentialCache;

  constructor({
    records,
    settings,
    configuration,
    clock,
  }: {
    readonly records: UserRecords;
    readonly settings: UsersSettings;
    readonly configuration: Pick<Configuration, 'domains' | 'hostname'>;
    readonly clock: Pick<Clock, 'monotonic'>;
  }) {
    this.#records = records;
    this.#configuration = configuration;
    this.#clock = clock;
    this.#settings = settings;
    this.#verified = this.#emptyCache();
  }

  get source(): string {
    return this.#records.source ?? this.#settings.file;
  }

  /** Applies new settings and clears the cache of sign-ins. */
  use(settings: UsersSettings): void {
    this.#settings = settings;
    this.#verified = this.#emptyCache();
  }

  isLocal(domain: string): boolean {
    return this.#configuration.domains.includes(domain);
  }

  /**
   * The recipient's user. In this order: exact name or alias, postmaster, the same without `+detail`, and the
   * catch-all; each in local domains only, except postmaster of this host itself.
   */
  lookup({ local, domain }: LocalDestination): UserRecord | undefined {
    const name = lowerCase(local);
    if (!this.isLocal(domain)) return this.#isOwnPostmaster(name, domain) ? this.#postmaster() : undefined;
    return this.#known(name, domain) ?? this.#known(this.#withoutDetail(name), domain) ?? this.#catchAll(name);
  }

  /** Name of the user who owns that address, with or without `+detail`. The catch-all owns no address. */
  ownerOf({ local, domain }: LocalDestination): string | undefined {
    const name = lowerCase(local);
    if (!this.isLocal(domain)) return this.#isOwnPostmaster(name, domain) ? this.#postmaster()?.username : undefined;
    return (this.#known(name, domain) ?? this.#known(this.#withoutDetail(name), domain))?.username;
  }

  resolve(address: Address): MailUser | undefined {
    const record = this.lookup(address);
    return record && asMailUser(record);
  }

  find(username: string): MailUser | undefined {
    const record = this.#records.get(this.canonical(username));
    return record && asMailUser(record);
  }

  list(): Promise<readonly MailUser[]> {
    return Promise.resolve(this.#records.list().map(asMailUser));
  }

  /** Throws `unavailable` when too many passwords are being checked, or a hash cannot be had. */
  async authenticate(username: string, password: string): Promise<MailUser | undefined> {
    const name = this.canonical(username);
    const record = this.#records.get(name);
    if (record === undefined || record.disabled || record.passwordHash === null) {
      await this.#records.hashOf?.(name);
      await verifyUnknownUser(password);
      return undefined;
    }
    // The hash is part of the key, so a new password or a removed user needs no invalidation.
    const key = `${record.username} ${record.passwordHash}`;
    if (this.#verified.get(key, password) === true) return asMailUser(record);
    const hash = this.#records.hashOf === undefined ? record.passwordHash : await this.#records.hashOf(name);
    if (hash === null || !(await verifyPassword(password, hash))) return undefined;
    const now = this.#records.get(record.username);
    if (now === undefined || now.disabled || now.passwordHash !== record.passwordHash) return undefined;
    this.#verified.remember(key, password);
    return asMailUser(now);
  }

  /** The current credential of that user, for comparison only; undefined when the user cannot sign in. */
  credentialOf(username: string): string | undefined {
    const record = this.#records.get(username);
    return record === undefined || record.disabled ? undefined : (record.passwordHash ?? undefined);
  }

  /** The canonical form of an entered name. */
  canonical(username: string): string {
    return canonicalUsername(username, this.#configuration.domains);
  }

  /** Name of the user who is postmaster of every local domain. */
  postmasterName(): string {
    return postmasterName(this.#settings, this.#configuration.domains);
  }

  /** The configured catch-all, when no such user exists. */
  missingCatchAll(): string | undefined {
    const { catchAll } = this.#settings;
    return catchAll !== null && this.#records.named(this.canonical(catchAll)) === undefined ? catchAll : undefined;
  }

  #known(local: string, domain: string): UserRecord | undefined {
    const record = this.#records.named(`${local}@${domain}`);
    return record ?? (local === 'postmaster' ? this.#postmaster() : undefined);
  }

  #isOwnPostmaster(local: string, domain: string): boolean {
    return local === 'postmaster' && domain === this.#configuration.hostname;
  }

  #withoutDetail(local: string): string {
    const { plusDetail } = this.#settings;
    const at = plusDetail === '' ? -1 : local.indexOf(plusDetail);
    return at > 0 ? local.slice(0, at) : local;
  }

  #postmaster(): UserRecord | undefined {
    return this.#records.named(this.postmasterName());
  }

  /** Receives unknown addresses, except source routes, which ask for relaying. */
  #catchAll(local: string): UserRecord | undefined {
    const { catchAll } = this.#settings;
    return catchAll === null || looksRouted(local) ? undefined : this.#records.named(this.canonical(catchAll));
  }

  #emptyCache(): CredentialCache {
    const { rememberSeconds } = this.#settings;
    const max = rememberSeconds === 0 ? 0 : rememberedUsers;
    return new CredentialCache({ ttlSeconds: rememberSeconds, max, clock: this.#clock });
  }
}

export function postmasterName({ postmaster }: Pick<UsersSettings, 'postmaster'>, domains: readonly string[]): string {
  return canonicalUsername(postmaster ?? 'postmaster', domains);
}

/** `a%b@c`, `b!a@c` and `"a@b"@c` are source routes of old hosts (RFC 5321 §3.3, RFC 1123 §5.2.16). */
export function looksRouted(local: string): boolean {
  return /[%!@]/.test(local);
}

/**
 * Ensures that mail for postmaster has a recipient (RFC 5321 §4.5.1): creates a user without a password if there is
 * none. This creates `users.json` at the first start.
 */
export async function ensurePostmaster(
  records: UserRecords,
  input: {
    readonly settings: Pick<UsersSettings, 'postmaster'>;
    readonly configuration: Pick<Configuration, 'domains'>;
    readonly clock: Pick<Clock, 'now'>;
  },
): Promise<void> {
  const { settings, configuration, clock } = input;
  const username = postmasterName(settings, configuration.domains);
  const createdAt = new Date(clock.now()).toISOString();
  try {
    if (records.named(username) !== undefined) return;
    if (!isUsername(username) || !configuration.domains.includes(partsOf(username).domain)) {
      const domains = configuration.domains.join(', ');
      throw startError(`plugins.users.postmaster: ${username} must be a mailbox in one of the domains ${domains}.`);
    }
    await records.add({ username, passwordHash: null, aliases: [], quota: null, disabled: false, createdAt });
  } catch (error) {
    // It is made at the next start or reload.
    if (isProblem(error) && error.problem === 'unavailable') return;
    // Created concurrently.
    if (records.named(username) === undefined) throw error;
  }
}
