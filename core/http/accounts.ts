import { hash, randomBytes, randomInt } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { Clock } from '../clock.js';
import type { AccountChange, AccountList, ListedAccount, NewAccount, Account } from '../contracts/accounts.js';
import type { StoredDocument } from '../contracts/cluster.js';
import { type Document, openDocument, openStoredDocument } from '../disk/document.js';
import { hashPassword, passwordComplaint, verifyUnknownUser, verifyPassword } from '../auth/password.js';
import { problem, startError } from '../problem.js';
import type { ConfiguredAccount } from './options.js';

/** The name of local commands; their password is the token in the lock file. */
export const ownerUsername = 'postern-owner';

const StoredAccount = z.strictObject({
  username: z.string().min(1),
  role: z.enum(['read', 'operate', 'admin']),
  passwordHash: z.string(),
  /** An operator chose the password; absent for the admin of the first start, which is valid only while no other account exists. */
  chosen: z.literal(true).optional(),
});
const Stored = z.strictObject({ accounts: z.array(StoredAccount) });
const none: z.output<typeof Stored> = { accounts: [] };
type StoredAccount = z.output<typeof StoredAccount>;

export interface AccountsInput {
  /** `http.accounts`; when absent and no account is stored, `admin` is stored in `file`. */
  readonly configured: readonly ConfiguredAccount[] | undefined;
  /** Absolute path of accounts.json. */
  readonly file: string;
  /** POSTERN_ADMIN_PASSWORD: when set, the password of `admin` at every start. */
  readonly adminPassword: string | undefined;
  /** Authenticates commands on this machine; lives as long as the process. */
  readonly ownerToken?: string;
  readonly clock: Clock;
  /** How long a verified password is remembered. */
  readonly rememberSeconds?: number;
}

export interface OpenedAccounts {
  readonly accounts: Accounts;
  /** The password just generated for `admin`, to be shown once. */
  readonly generatedPassword: string | undefined;
  /**
   * Stores a generated password when the start has succeeded: otherwise it would leave an unknown password. False when it
   * is not to be shown: another server of the cluster was quicker.
   */
  readonly keep: () => Promise<boolean>;
}

interface Entry {
  readonly account: Account;
  /** @throws Problem `unavailable` when too many sign-ins are being checked; retry later */
  readonly hash: () => Promise<string>;
  /** The password, where it is known in clear. */
  readonly plain?: string | undefined;
  /** As it is configured or stored. */
  readonly from: ConfiguredAccount | StoredAccount | 'environment';
  readonly source: 'configuration' | 'environment' | 'stored';
}

interface Roster {
  readonly entries: ReadonlyMap<string, Entry>;
  /** The accounts are configured; false while `admin` has the generated password. */
  readonly chosen: boolean;
}

/** Other accounts, checked. */
export interface PreparedAccounts {
  readonly chosen: boolean;
  /** Applies them, and returns the undo. */
  commit(): () => void;
}

/**
 * Opens the accounts; the first start without configured ones makes `admin` with a random password. Throws a start
 * error when POSTERN_ADMIN_PASSWORD is no good password.
 */
export async function openAccounts(input: AccountsInput): Promise<OpenedAccounts> {
  const complaint = adminPasswordComplaint(input.adminPassword);
  if (complaint !== undefined) throw startError(complaint);
  const document = await openDocument({ file: input.file, schema: Stored, initial: none });
  const { adminPassword, configured } = input;
  const isFirst = configured === undefined && !adminPassword && document.data.accounts.length === 0;
  if (!isFirst) {
    return {
      accounts: new Accounts(document, input),
      generatedPassword: undefined,
      keep: () => Promise.resolve(false),
    };
  }
  const generatedPassword = readablePassword();
  const admin = { username: 'admin', role: 'admin' as const, passwordHash: await hashPassword(generatedPassword) };
  const accounts = new Accounts(document, input, admin);
  return { accounts, generatedPassword, keep: () => accounts.keepGenerated() };
}

/** What is wrong with POSTERN_ADMIN_PASSWORD, if it is set. */
export function adminPasswordComplaint(password: string | undefined): string | undefined {
  const complaint = password ? passwordComplaint(password, 'admin') : undefined;
  return complaint === undefined ? undefined : `POSTERN_ADMIN_PASSWORD cannot be used. ${complaint}`;
}

/** Accounts of the configuration and the environment. One unchanged since `old` is not hashed again. */
function configuredAccounts({ configured = [], adminPassword }: AccountsInput, old: Roster['entries']): Roster {
  const entries = new Map<string, Entry>();
  for (const one of configured) {
    const known = old.get(one.username);
    entries.set(
      one.username,
      isDeepStrictEqual(known?.from, one) ? (known ?? configuredEntry(one)) : configuredEntry(one),
    );
  }
  const byEnvironment = adminPassword !== undefined && adminPassword !== '';
  if (byEnvironment) {
    const known = old.get('admin');
    entries.set(
      'admin',
      known?.from === 'environment'
        ? known
        : {
            source: 'environment',
            account: { username: 'admin', role: 'admin' },
            hash: hashOf(adminPassword),
            plain: adminPassword,
            from: 'environment',
          },
    );
  }
  return { entries, chosen: configured.length > 0 || byEnvironment };
}

/** Computed on first use, and kept. */
function hashOf(password: string): Entry['hash'] {
  let made: Promise<string> | undefined;
  return () => {
    made ??= hashPassword(password).catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

function configuredEntry(from: ConfiguredAccount): Entry {
  const { username, role, password, passwordHash } = from;
  const hash = passwordHash === undefined ? hashOf(password ?? '') : () => Promise.resolve(passwordHash);
  return { account: { username, role }, hash, plain: password, from, source: 'configuration' };
}

function storedEntry(from: StoredAccount, old: Roster['entries']): Entry {
  const { username, role, passwordHash } = from;
  const known = old.get(username);
  if (known !== undefined && isDeepStrictEqual(known.from, from)) return known;
  return { account: { username, role }, hash: () => Promise.resolve(passwordHash), from, source: 'stored' };
}

/** Configured accounts come before stored ones of their name. */
function rosterOf(input: AccountsInput, stored: readonly StoredAccount[], old: Roster['entries']): Roster {
  const given = configuredAccounts(input, old);
  const counting = stored.filter(({ chosen }) => chosen === true || !given.chosen);
  const entries = counting.map((one) => [one.username, storedEntry(one, old)] as const);
  const chosen = given.chosen || counting.some((one) => one.chosen === true && one.role === 'admin');
  return { entries: new Map([...entries, ...given.entries]), chosen };
}

const hasAdmin = ({ entries }: Roster): boolean =>
  [...entries.values()].some(({ account }) => account.role === 'admin');

const refused = (pointer: string, message: string) =>
  problem('invalid', { detail: message, errors: [{ pointer: `/${pointer}`, message }] });

/** Names that can stand in a path and in HTTP Basic. */
const usernameRule = /^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$/;
const maxStored = 1000;

/** 20 characters of 29 that cannot be confused with each other, in groups of five: 97 bits. */
export function readablePassword(): string {
  const letters = 'abcdefghjkmnpqrstuvwxyz346789';
  const pick = () => letters.charAt(randomInt(letters.length));
  return Array.from({ length: 4 }, () => Array.from({ length: 5 }, pick).join('')).join('-');
}

/** Accounts of the HTTP interface. Takes the same time for an unknown name. */
export class Accounts implements AccountList {
  #document: Document<z.output<typeof Stored>>;
  /** Where stored accounts are. */
  #place: 'data folder' | 'cluster' = 'data folder';
  /** The admin of the first start, until it is stored. */
  #generated: StoredAccount | undefined;
  #input: AccountsInput;
  readonly #key = randomBytes(32).toString('base64');
  readonly #running = new Map<string, Promise<Account | undefined>>();
  readonly #owner: string | undefined;
  /** What depends on accounts, and how to end it. */
  readonly #goingOn = new Map<() => void, Account>();
  readonly #changed = new Set<() => void>();
  #roster: Roster;
  #making = false;
  #rememberSeconds: number | undefined;
  #verified: LRUCache<string, Account> | undefined;

  constructor(document: Document<z.output<typeof Stored>>, input: AccountsInput, generated?: StoredAccount) {
    this.#document = document;
    this.#input = input;
    this.#generated = generated;
    this.#roster = rosterOf(input, this.#stored, new Map());
    void this.#makeHashes();
    this.remember(input.rememberSeconds ?? 60);
    if (input.ownerToken !== undefined) this.#owner = this.#digest(ownerUsername, input.ownerToken);
  }

  /** The accounts are configured; false while `admin` has the generated password. */
  get chosen(): boolean {
    return this.#roster.chosen;
  }

  /** How long a verified password is cached; 0 is never. */
  remember(seconds: number): void {
    if (seconds === this.#rememberSeconds) return;
    this.#rememberSeconds = seconds;
    const perf = { now: () => this.#input.clock.monotonic() };
    this.#verified = seconds > 0 ? new LRUCache({ max: 1000, ttl: seconds * 1000, ttlResolution: 0, perf }) : undefined;
  }

  /**
   * Other accounts for a running server. Rejects with a start error when there would be none: a password that is made is
   * shown in a terminal, which only a start has.
   */
  prepare(configured: readonly ConfiguredAccount[] | undefined): Promise<PreparedAccounts> {
    const input = { ...this.#input, configured };
    const next = rosterOf(input, this.#stored, this.#roster.entries);
    if (configured === undefined && next.entries.size === 0) {
      const sentence =
        'Without http.accounts, admin lives in accounts.json in the data folder, which is not there: a restart makes it and shows the password.';
      return Promise.reject(startError(sentence));
    }
    return Promise.resolve({
      chosen: next.chosen,
      commit: () => {
        const [oldInput, old] = [this.#input, this.#roster];
        this.#input = input;
        this.#replaceRoster(rosterOf(input, this.#stored, old.entries));
        return () => {
          this.#input = oldInput;
          this.#replaceRoster(rosterOf(oldInput, this.#stored, old.entries));
        };
      },
    });
  }

  get #stored(): readonly StoredAccount[] {
    const { accounts } = this.#document.data;
    return this.#generated === undefined || accounts.length > 0 ? accounts : [this.#generated];
  }

  /** Whether it is kept: another server of a cluster may have been quicker. */
  async keepGenerated(): Promise<boolean> {
    const generated = this.#generated;
    if (generated === undefined) return false;
    if (this.#document.data.accounts.length === 0) {
      await this.#document.update((stored) => (stored.accounts.length > 0 ? stored : { accounts: [generated] }));
    }
    this.#generated = undefined;
    this.#renew();
    return this.#document.data.accounts.some(({ passwordHash }) => passwordHash === generated.passwordHash);
  }

  /**
   * From now on stored accounts are those of a document that other servers have as well. When there is none yet, it begins
   * with those of the file.
   */
  async share(stored: StoredDocument): Promise<void> {
    const own = this.#document.data;
    // Of servers that start at once, one is the first.
    if (own.accounts.length > 0 && (await stored.read()) === undefined) {
      await stored.replace(JSON.stringify(own), undefined);
    }
    this.#document = await openStoredDocument(stored, { schema: Stored, initial: none });
    this.#place = 'cluster';
    this.#document.watch(() => this.#renew());
    this.#renew();
  }

  /** Reads what another server may have changed. */
  look(): Promise<void> {
    return this.#document.look();
  }

  #renew(): void {
    this.#replaceRoster(rosterOf(this.#input, this.#stored, this.#roster.entries));
  }

  list(): readonly ListedAccount[] {
    const all = [...this.#roster.entries.values()].map((entry) => this.#listed(entry));
    return all.toSorted((a, b) => (a.username < b.username ? -1 : 1));
  }

  get(username: string): ListedAccount {
    const entry = this.#roster.entries.get(username);
    if (entry === undefined) throw problem('not-found', 'There is no such account.');
    return this.#listed(entry);
  }

  #listed({ account: { username, role }, source }: Entry): ListedAccount {
    return { username, role, source: source === 'stored' ? this.#place : source };
  }

  async add({ username, role, password }: NewAccount): Promise<ListedAccount> {
    if (!usernameRule.test(username) || username === ownerUsername) {
      throw refused('username', 'A name has 1 to 64 letters, digits or . _ @ + -, and begins with a letter or digit.');
    }
    const passwordHash = await newHash(password, username);
    return this.#change(username, (accounts) => {
      if (this.#roster.entries.has(username) || accounts.some((one) => one.username === username)) {
        const message = `There is an account ${username} already.`;
        throw problem('conflict', { detail: message, errors: [{ pointer: '/username', message }] });
      }
      if (accounts.length >= maxStored) throw problem('conflict', `There are ${maxStored} accounts already.`);
      return [...accounts, { username, role, passwordHash, chosen: true }];
    });
  }

  async change(username: string, { role, password }: AccountChange): Promise<ListedAccount> {
    this.#requireStored(username);
    const passwordHash = password === undefined ? undefined : await newHash(password, username);
    return this.#change(username, (accounts) => {
      this.#requireStored(username);
      return accounts.map((one) =>
        one.username === username
          ? {
              ...one,
              ...(role !== undefined && { role }),
              ...(passwordHash !== undefined && { passwordHash, chosen: true as const }),
            }
          : one,
      );
    });
  }

  async remove(username: string): Promise<void> {
    this.#requireStored(username);
    await this.#store((accounts) => {
      this.#requireStored(username);
      return accounts.filter((one) => one.username !== username);
    });
  }

  #requireStored(username: string): void {
    const { source } = this.get(username);
    if (source === this.#place) return;
    const place = source === 'configuration' ? 'the configuration (http.accounts)' : 'POSTERN_ADMIN_PASSWORD';
    throw problem('conflict', `${username} comes from ${place}: change it there.`);
  }

  async #change(username: string, change: ChangeStored): Promise<ListedAccount> {
    await this.#store(change);
    return this.get(username);
  }

  /** Durable first, then in force. */
  async #store(change: ChangeStored): Promise<void> {
    await this.keepGenerated();
    await this.#document.update(({ accounts }) => {
      const next = change(accounts);
      const roster = rosterOf(this.#input, next, this.#roster.entries);
      if (hasAdmin(this.#roster) && !hasAdmin(roster)) {
        throw problem('conflict', 'This is the last admin: add another first.');
      }
      return { accounts: [...next] };
    });
    this.#renew();
  }

  /**
   * Hashes in advance, so that the first sign-in takes no longer than the next. One after the other in one run, as
   * there may be many.
   */
  async #makeHashes(): Promise<void> {
    if (this.#making) return;
    this.#making = true;
    let done: Roster | undefined;
    while (done !== this.#roster) {
      done = this.#roster;
      for (const { hash } of done.entries.values()) {
        if (done !== this.#roster) break;
        await hash().catch(() => undefined);
      }
    }
    this.#making = false;
  }

  /** Cached passwords of removed or changed accounts are dropped. */
  #replaceRoster(next: Roster): void {
    this.#roster = next;
    void this.#makeHashes();
    for (const [key, account] of this.#verified?.entries() ?? []) {
      if (!this.isInForce(account)) this.#verified?.delete(key);
    }
    for (const [leave, account] of this.#goingOn) if (!this.isInForce(account)) leave();
    for (const changed of this.#changed) changed();
  }

  has(username: string): boolean {
    return this.#roster.entries.has(username);
  }

  /** As it is in force. */
  find(username: string): Account | undefined {
    return this.#roster.entries.get(username)?.account;
  }

  /** False for an account that was removed or changed. */
  isInForce(account: Account): boolean {
    return account === owner || this.#roster.entries.get(account.username)?.account === account;
  }

  /** Calls `leave` when the account is removed or changed; never for other accounts. Returns the undo. */
  untilTakenAway(account: Account, leave: () => void): () => void {
    if (this.isInForce(account)) this.#goingOn.set(leave, account);
    return () => this.#goingOn.delete(leave);
  }

  /** Calls the function whenever other accounts came into force. */
  onChange(changed: () => void): void {
    this.#changed.add(changed);
  }

  /** Undefined when the account is no longer in force, and for local commands. */
  async passwordHashOf(account: Account): Promise<string | undefined> {
    const entry = this.#roster.entries.get(account.username);
    return entry?.account === account ? entry.hash() : undefined;
  }

  /** The account that still has that role and password. */
  async recognise({
    username,
    role,
    passwordHash,
  }: Account & { readonly passwordHash: string }): Promise<Account | undefined> {
    const entry = this.#roster.entries.get(username);
    if (entry?.account.role !== role) return undefined;
    // The hash of a password that is configured in clear is another one after each start.
    const isSame =
      entry.plain === undefined
        ? (await entry.hash()) === passwordHash
        : await verifyPassword(entry.plain, passwordHash);
    return isSame && this.isInForce(entry.account) ? entry.account : undefined;
  }

  /** The account of credentials that need no hash to be verified: they were, a moment ago. */
  recall(username: string, password: string): Account | undefined {
    const key = this.#digest(username, password);
    // What a digest begins with cannot be chosen by who does not know the key: how far two agree tells nothing.
    return key === this.#owner ? owner : this.#verified?.get(key);
  }

  /** Concurrent requests with the same credentials share one hash. */
  async verify(username: string, password: string): Promise<Account | undefined> {
    const known = this.recall(username, password);
    if (known !== undefined) return known;
    const key = this.#digest(username, password);
    const running = this.#running.get(key) ?? this.#check(key, username, password);
    this.#running.set(key, running);
    return running.finally(() => this.#running.delete(key));
  }

  async #check(key: string, username: string, password: string): Promise<Account | undefined> {
    const entry = this.#roster.entries.get(username);
    const right =
      entry === undefined ? await verifyUnknownUser(password) : await verifyPassword(password, await entry.hash());
    // The password was changed meanwhile: the new one counts.
    if (this.#roster.entries.get(username) !== entry) return this.#check(key, username, password);
    if (!right || entry === undefined) return undefined;
    this.#verified?.set(key, entry.account);
    return entry.account;
  }

  /**
   * Keyed, so that neither the cache nor a dump of it can be tried against a word list elsewhere. In one call: an HMAC
   * object would cost more than the rest of the way of a request. No digest leaves the process, so none can be
   * extended.
   */
  #digest(username: string, password: string): string {
    return hash('sha256', `${this.#key}${username.length}:${username}${password}`, 'base64');
  }
}

type ChangeStored = (accounts: readonly StoredAccount[]) => readonly StoredAccount[];

/** @throws Problem `invalid` for a password that is too short or easy to guess */
async function newHash(password: string, username: string): Promise<string> {
  const complaint = passwordComplaint(password, username);
  if (complaint !== undefined) throw refused('password', complaint);
  return hashPassword(password);
}

const owner: Account = { username: ownerUsername, role: 'admin' };
