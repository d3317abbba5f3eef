import { createHash } from 'node:crypto';
import type { Clock } from '../../core/clock.js';
import { hashPassword, passwordComplaint } from '../../core/auth/password.js';
import type { UserRecord, UserRecords } from '../../core/contracts/user-records.js';
import { problem } from '../../core/problem.js';
import { allValid, canonicalUsername, invalid, newAliases, newUsername, partsOf, quotaOf } from './user.js';

/** A user in responses to operators; of the password only whether there is one. */
export interface UserDetails {
  readonly username: string;
  readonly domain: string;
  readonly aliases: readonly string[];
  /** Bytes; null means none. */
  readonly quota: number | null;
  readonly disabled: boolean;
  /** False: the user cannot sign in. Null where another plugin manages users, also in the next field. */
  readonly hasPassword: boolean | null;
  /** ISO 8601. */
  readonly createdAt: string | null;
}

export interface UserChange {
  readonly password?: string | undefined;
  /** The complete list; aliases not in it are removed. */
  readonly aliases?: readonly string[] | undefined;
  /** Bytes, or a size such as `500 MB`; null means none. */
  readonly quota?: number | string | null | undefined;
  readonly disabled?: boolean | undefined;
}

export interface NewUser extends UserChange {
  readonly username: string;
}

/** True when the user is still the version that the caller read. */
export type UserExpectation = (user: UserDetails) => boolean;

/** Operations on users over HTTP and from the command line. Durable when they resolve. */
export interface Roster {
  list(): Promise<readonly UserDetails[]>;
  /** Without a password the user cannot sign in. Throws `invalid`, `conflict`. */
  add(user: NewUser): Promise<UserDetails>;
  /** Throws `not-found`, `invalid`, `conflict`. */
  change(username: string, change: UserChange): Promise<UserDetails>;
  /** The mailbox and its messages stay. Throws `not-found`, `conflict`. */
  remove(username: string): Promise<void>;
}

export interface LocalRosterInput {
  readonly records: UserRecords;
  readonly configuration: { readonly domains: readonly string[] };
  /** Name of the user who cannot be removed, since mail for postmaster goes there. */
  readonly postmaster: () => string;
  readonly clock: Pick<Clock, 'now'>;
}

/** The roster over the file, for the process that owns the data folder. */
export class LocalRoster implements Roster {
  readonly #input: LocalRosterInput;

  constructor(input: LocalRosterInput) {
    this.#input = input;
  }

  list(): Promise<readonly UserDetails[]> {
    return Promise.resolve(this.#input.records.list().map(detailsOf));
  }

  /** By its name as typed. Throws `not-found`. */
  get(username: string): UserDetails {
    const record = this.#input.records.get(this.#canonical(username));
    if (record === undefined) throw noSuchUser();
    return detailsOf(record);
  }

  async add(user: NewUser): Promise<UserDetails> {
    const { records, configuration, clock } = this.#input;
    const { domains } = configuration;
    const typed = canonicalUsername(user.username, domains);
    const { username, aliases, quota } = allValid({
      username: () => newUsername(user.username, domains),
      aliases: () => newAliases(user.aliases ?? [], typed, domains),
      quota: () => quotaOf(user.quota ?? null),
      password: () => checkNewPassword(user.password, typed),
    });
    const record: UserRecord = {
      username,
      aliases: [...aliases],
      quota,
      disabled: user.disabled ?? false,
      createdAt: new Date(clock.now()).toISOString(),
      passwordHash: user.password === undefined ? null : await hashPassword(user.password),
    };
    this.#keepPostmaster(record);
    await records.add(record);
    return detailsOf(record);
  }

  /** @param expected checks that the user is the version that the caller read; if not, `precondition-failed` */
  async change(typed: string, change: UserChange, expected: UserExpectation = always): Promise<UserDetails> {
    const { records, configuration } = this.#input;
    const { username, createdAt } = this.get(typed);
    const { aliases, quota } = allValid({
      aliases: () => change.aliases && newAliases(change.aliases, username, configuration.domains),
      quota: () => (change.quota === undefined ? undefined : quotaOf(change.quota)),
      password: () => checkNewPassword(change.password, username),
    });
    const passwordHash = change.password === undefined ? undefined : await hashPassword(change.password);
    const changed = await records.change(username, (record) => {
      // While the password was hashed, the user may have been replaced.
      if (record.createdAt !== createdAt) throw noSuchUser();
      expect(record, expected);
      const next = {
        ...record,
        aliases: aliases === undefined ? record.aliases : [...aliases],
        quota: quota === undefined ? record.quota : quota,
        disabled: change.disabled ?? record.disabled,
        passwordHash: passwordHash ?? record.passwordHash,
      };
      this.#keepPostmaster(next, record);
      return next;
    });
    return detailsOf(changed);
  }

  async remove(typed: string, expected: UserExpectation = always): Promise<void> {
    const { username } = this.get(typed);
    await this.#input.records.remove(username, (record) => {
      if ([username, ...record.aliases].includes(this.#input.postmaster())) {
        throw problem('conflict', `${username} gets the mail for postmaster, which every mail server must take.`);
      }
      expect(record, expected);
    });
  }

  #canonical(username: string): string {
    return canonicalUsername(username, this.#input.configuration.domains);
  }

  /** RFC 5321 §4.5.1: mail for postmaster must always be accepted. */
  #keepPostmaster(next: UserRecord, before?: UserRecord): void {
    const postmaster = this.#input.postmaster();
    const isPostmaster = (record: UserRecord) => [record.username, ...record.aliases].includes(postmaster);
    if (isPostmaster(next)) {
      if (next.disabled) throw problem('conflict', 'The user who gets the mail for postmaster cannot be disabled.');
    } else if (before !== undefined && isPostmaster(before)) {
      throw problem('conflict', `${postmaster} must stay an alias of this user: the mail for postmaster goes there.`);
    }
  }
}

const noSuchUser = (): Error => problem('not-found', 'There is no such user.');

const always = (): boolean => true;

function expect(record: UserRecord, expected: UserExpectation): void {
  if (expected(detailsOf(record))) return;
  throw problem('precondition-failed', 'Somebody else has changed this user since you read it.');
}

function checkNewPassword(password: string | undefined, username: string): void {
  const complaint = password === undefined ? undefined : passwordComplaint(password, username);
  if (complaint !== undefined) throw invalid('password', complaint);
}

export function detailsOf(record: UserRecord): UserDetails {
  const known = detailsMade.get(record);
  if (known !== undefined) return known;
  const { username, aliases, quota, disabled, passwordHash, createdAt } = record;
  const { domain } = partsOf(username);
  const details = { username, domain, aliases, quota, disabled, hasPassword: passwordHash !== null, createdAt };
  detailsMade.set(record, details);
  recordOf.set(details, record);
  return details;
}

/** Records are immutable, so their details are cached. */
const detailsMade = new WeakMap<UserRecord, UserDetails>();
const recordOf = new WeakMap<UserDetails, UserRecord>();

/** Changes with every change, also of the password; reveals nothing about it, since the salt is secret. */
export function userVersion(user: UserDetails): string {
  const text = JSON.stringify([user, recordOf.get(user)?.passwordHash]);
  return createHash('sha256').update(text).digest('base64url').slice(0, 22);
}
