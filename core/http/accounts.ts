import { createHmac, randomBytes, randomInt, timingSafeEqual } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { Clock } from '../clock.js';
import { openDocument } from '../disk/document.js';
import { hashPassword, verifyNobody, verifyPassword } from '../password.js';
import type { Account } from './endpoint.js';
import type { ConfiguredAccount } from './options.js';

/** The name with which a command on this machine signs in; its password is the token in the lock file. */
export const ownerUsername = 'postern-owner';

const Stored = z.strictObject({
  accounts: z.array(
    z.strictObject({
      username: z.string().min(1),
      role: z.enum(['read', 'operate', 'admin']),
      passwordHash: z.string(),
    }),
  ),
});

export interface AccountsInput {
  /** `http.accounts`; when absent, `admin` lives in `file`. */
  readonly configured: readonly ConfiguredAccount[] | undefined;
  /** Absolute path of accounts.json. */
  readonly file: string;
  /** POSTERN_ADMIN_PASSWORD: when set, `admin` has it at every start. */
  readonly adminPassword: string | undefined;
  /** Lets commands on this machine in; lives as long as the process. */
  readonly ownerToken?: string;
  readonly clock: Clock;
  /** How long a verified password is remembered. */
  readonly rememberSeconds?: number;
}

export interface OpenedAccounts {
  readonly accounts: Accounts;
  /** The password that was made for `admin` just now; to be shown once. */
  readonly generatedPassword: string | undefined;
}

interface Entry {
  readonly account: Account;
  readonly hash: Promise<string>;
}

/** Opens the accounts; the first start without configured ones makes `admin` with a random password. */
export async function openAccounts(input: AccountsInput): Promise<OpenedAccounts> {
  const { configured, adminPassword } = input;
  const configuredEntries = (configured ?? []).map(configuredEntry);
  const chosen = configuredEntries.length > 0 || (adminPassword !== undefined && adminPassword !== '');
  const { stored, generatedPassword } =
    configured === undefined && !chosen ? await openStored(input.file) : { stored: [], generatedPassword: undefined };
  const entries = new Map([...stored, ...configuredEntries].map((entry) => [entry.account.username, entry]));
  if (adminPassword !== undefined && adminPassword !== '') {
    entries.set('admin', { account: { username: 'admin', role: 'admin' }, hash: hashPassword(adminPassword) });
  }
  return { accounts: new Accounts(entries, chosen, input), generatedPassword };
}

function configuredEntry({ username, role, password, passwordHash }: ConfiguredAccount): Entry {
  const hash = passwordHash === undefined ? hashPassword(password ?? '') : Promise.resolve(passwordHash);
  return { account: { username, role }, hash };
}

async function openStored(file: string) {
  const document = await openDocument({ file, schema: Stored, initial: { accounts: [] } });
  let generatedPassword: string | undefined;
  if (document.data.accounts.length === 0) {
    generatedPassword = readablePassword();
    const passwordHash = await hashPassword(generatedPassword);
    await document.update(() => ({ accounts: [{ username: 'admin', role: 'admin' as const, passwordHash }] }));
  }
  const stored = document.data.accounts.map(({ username, role, passwordHash }) => ({
    account: { username, role },
    hash: Promise.resolve(passwordHash),
  }));
  return { stored, generatedPassword };
}

/** 20 characters of 29 that cannot be confused with each other, in groups of five: 97 bits. */
export function readablePassword(): string {
  const letters = 'abcdefghjkmnpqrstuvwxyz346789';
  const pick = () => letters.charAt(randomInt(letters.length));
  return Array.from({ length: 4 }, () => Array.from({ length: 5 }, pick).join('')).join('-');
}

/** Who may sign in over HTTP. Takes the same time for an unknown name. */
export class Accounts {
  readonly #entries: ReadonlyMap<string, Entry>;
  readonly #key = randomBytes(32);
  readonly #verified: LRUCache<string, Account> | undefined;
  readonly #running = new Map<string, Promise<Account | undefined>>();
  readonly #owner: Buffer | undefined;
  /** An operator chose these accounts; false while `admin` still has the password of the first start. */
  readonly chosen: boolean;

  constructor(
    entries: ReadonlyMap<string, Entry>,
    chosen: boolean,
    input: Pick<AccountsInput, 'ownerToken' | 'rememberSeconds' | 'clock'>,
  ) {
    this.#entries = entries;
    this.chosen = chosen;
    const seconds = input.rememberSeconds ?? 60;
    const perf = { now: () => input.clock.monotonic() };
    if (seconds > 0) this.#verified = new LRUCache({ max: 1000, ttl: seconds * 1000, ttlResolution: 0, perf });
    if (input.ownerToken !== undefined) this.#owner = this.#digest(ownerUsername, input.ownerToken);
  }

  /** The same credentials are hashed once even when many requests bring them at the same moment. */
  async verify(username: string, password: string): Promise<Account | undefined> {
    const digest = this.#digest(username, password);
    if (this.#owner !== undefined && timingSafeEqual(digest, this.#owner)) return owner;
    const key = digest.toString('base64');
    const known = this.#verified?.get(key);
    if (known !== undefined) return known;
    const running = this.#running.get(key) ?? this.#check(key, username, password);
    this.#running.set(key, running);
    return running.finally(() => this.#running.delete(key));
  }

  async #check(key: string, username: string, password: string): Promise<Account | undefined> {
    const entry = this.#entries.get(username);
    const right = entry === undefined ? await verifyNobody(password) : await verifyPassword(password, await entry.hash);
    if (!right || entry === undefined) return undefined;
    this.#verified?.set(key, entry.account);
    return entry.account;
  }

  /** Keyed, so that neither the cache nor a dump of it can be tried against a word list elsewhere. */
  #digest(username: string, password: string): Buffer {
    return createHmac('sha256', this.#key).update(`${username.length}:${username}${password}`).digest();
  }
}

const owner: Account = { username: ownerUsername, role: 'admin' };
