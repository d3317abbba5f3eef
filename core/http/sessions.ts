import { createHash, randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { z } from 'zod';
import type { Clock } from '../clock.js';
import { type Document, openDocument } from '../disk/document.js';
import type { Log } from '../log/log.js';
import { isStartError } from '../problem.js';
import type { Accounts } from './accounts.js';
import type { Account } from '../contracts/accounts.js';

const StoredSession = z.strictObject({
  /** Names the session on pages; tells nothing about its token. */
  id: z.string(),
  /** SHA-256 of the token. */
  digest: z.string(),
  username: z.string(),
  role: z.enum(['read', 'operate', 'admin']),
  /** Hash of the password at the sign-in: after a restart, another password ends the session. */
  passwordHash: z.string(),
  address: z.string(),
  browser: z.string(),
  since: z.iso.datetime(),
  lastUsed: z.iso.datetime(),
});
const Stored = z.strictObject({ sessions: z.array(StoredSession) });
type StoredSession = z.output<typeof StoredSession>;

/** One browser that is signed in. */
export interface BrowserSession {
  readonly id: string;
  readonly username: string;
  /** Where it signed in from. */
  readonly address: string;
  readonly browser: string;
  readonly since: number;
  readonly lastUsed: number;
}

interface OpenSession extends Omit<StoredSession, 'since' | 'lastUsed'> {
  readonly since: number;
  lastUsed: number;
  /** Undefined after a restart, until the account is found unchanged. */
  account: Account | undefined;
  /** Ends what goes on in this session, such as a stream. */
  readonly leaves: Set<() => void>;
}

export interface SessionLimits {
  readonly sessionIdleSeconds: number;
  readonly sessionSeconds: number;
  readonly sessionsPerAccount: number;
}

interface SessionsInput {
  /** Absolute path of sessions.json. */
  readonly file: string;
  readonly accounts: Pick<Accounts, 'isInForce' | 'passwordHashOf' | 'recognise' | 'onChange'>;
  readonly limits: () => SessionLimits;
  readonly clock: Clock;
  readonly log: Log;
}

/** Browsers that signed in with the page. */
export interface BrowserSessions {
  /** The token of the new session, which is kept then; undefined when the account is no longer in force. */
  begin(account: Account, from: Pick<BrowserSession, 'address' | 'browser'>): Promise<string | undefined>;
  /** The session of a token and its account, which counts as a use of it. */
  find(token: string): Promise<{ readonly session: BrowserSession; readonly account: Account } | undefined>;
  /** Those of an account, the one used last first. */
  list(username: string): readonly BrowserSession[] | Promise<readonly BrowserSession[]>;
  /** Ends those of the account that fit, and resolves with their number when that is kept. */
  end(username: string, fits: (session: BrowserSession) => boolean): Promise<number>;
  /** Calls `leave` when the session ends. Returns the undo. */
  untilEnd(session: BrowserSession, leave: () => void): () => void;
  close(): Promise<void>;
}

/** Sessions of all accounts together; the one unused longest ends. */
export const maxSessions = 1000;
/** The time of last use is written this late; a crash loses it. */
const writeUseAfterMs = 60_000;

/**
 * Browsers that signed in at a server that is alone, in a file. The cookie has a random token, the disk only its digest. A session ends after
 * some time without use, at its greatest age, at sign-out, and with its account: when that is removed, or has another
 * password or role.
 */
export class Sessions implements BrowserSessions {
  readonly #input: SessionsInput;
  readonly #byDigest = new Map<string, OpenSession>();
  #document: Document<z.output<typeof Stored>> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(input: SessionsInput) {
    this.#input = input;
    input.accounts.onChange(() => void this.#endUnfit());
  }

  /** A file that cannot be understood is removed: it costs no more than signing in again. */
  async load(): Promise<void> {
    const options = { file: this.#input.file, schema: Stored, initial: { sessions: [] } };
    this.#document = await openDocument(options).catch(async (error: unknown) => {
      if (!isStartError(error)) throw error;
      this.#input.log.warn({ err: error }, 'the sessions cannot be read: everybody has to sign in again');
      await rm(options.file, { force: true, recursive: true });
      return openDocument(options);
    });
    for (const { since, lastUsed, ...stored } of this.#document.data.sessions) {
      const times = { since: Date.parse(since), lastUsed: Date.parse(lastUsed) };
      this.#byDigest.set(stored.digest, { ...stored, ...times, account: undefined, leaves: new Set() });
    }
  }

  async begin(
    account: Account,
    { address, browser }: Pick<BrowserSession, 'address' | 'browser'>,
  ): Promise<string | undefined> {
    const now = this.#input.clock.now();
    const passwordHash = await this.#input.accounts.passwordHashOf(account);
    if (passwordHash === undefined) return undefined;
    const { username, role } = account;
    const { token, id, digest } = newSession();
    const open = { account, leaves: new Set<() => void>(), since: now, lastUsed: now };
    this.#byDigest.set(digest, { id, digest, username, role, passwordHash, address, browser, ...open });
    const own = this.#fit().filter((one) => one.username === username);
    this.#dropOldest(own, this.#input.limits().sessionsPerAccount);
    this.#dropOldest([...this.#byDigest.values()], maxSessions);
    await this.#write();
    return token;
  }

  async find(token: string): Promise<{ readonly session: BrowserSession; readonly account: Account } | undefined> {
    const session = this.#byDigest.get(digestOf(token));
    if (session === undefined) return undefined;
    if (this.#isFit(session)) session.account ??= await this.#input.accounts.recognise(session);
    const { account } = session;
    if (account === undefined || !this.#isFit(session) || this.#byDigest.get(session.digest) !== session) {
      await this.#end([session]);
      return undefined;
    }
    session.lastUsed = this.#input.clock.now();
    this.#timer ??= setTimeout(() => void this.#writeLater(), writeUseAfterMs).unref();
    return { session, account };
  }

  list(username: string): readonly BrowserSession[] {
    const own = this.#fit().filter((session) => session.username === username);
    return own.toSorted((a, b) => b.lastUsed - a.lastUsed);
  }

  async end(username: string, fits: (session: BrowserSession) => boolean): Promise<number> {
    const ended = [...this.#byDigest.values()].filter((one) => one.username === username && fits(one));
    await this.#end(ended);
    return ended.length;
  }

  untilEnd(session: BrowserSession, leave: () => void): () => void {
    const open = [...this.#byDigest.values()].find(({ id }) => id === session.id);
    open?.leaves.add(leave);
    return () => open?.leaves.delete(leave);
  }

  async close(): Promise<void> {
    if (this.#timer !== undefined) await this.#writeLater();
  }

  #fit(): readonly OpenSession[] {
    return [...this.#byDigest.values()].filter((session) => this.#isFit(session));
  }

  #isFit({ since, lastUsed, account }: OpenSession): boolean {
    const { sessionIdleSeconds, sessionSeconds } = this.#input.limits();
    const now = this.#input.clock.now();
    if (now - lastUsed > sessionIdleSeconds * 1000 || now - since > sessionSeconds * 1000) return false;
    return account === undefined || this.#input.accounts.isInForce(account);
  }

  /** After a change of accounts. */
  async #endUnfit(): Promise<void> {
    const unfit = [...this.#byDigest.values()].filter((session) => !this.#isFit(session));
    await this.#end(unfit).catch((error: unknown) => this.#fail(error));
  }

  async #end(sessions: readonly OpenSession[]): Promise<void> {
    const ended = sessions.filter(({ digest }) => this.#byDigest.delete(digest));
    for (const { leaves } of ended) for (const leave of leaves) leave();
    if (ended.length > 0) await this.#write();
  }

  #dropOldest(sessions: readonly OpenSession[], most: number): void {
    const newest = sessions.toSorted((a, b) => b.lastUsed - a.lastUsed || b.since - a.since);
    for (const { digest, leaves } of newest.slice(most)) {
      this.#byDigest.delete(digest);
      for (const leave of leaves) leave();
    }
  }

  async #writeLater(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#write().catch((error: unknown) => this.#fail(error));
  }

  async #write(): Promise<void> {
    const time = (milliseconds: number): string => new Date(milliseconds).toISOString();
    await this.#document?.update(() => ({
      sessions: this.#fit().map(({ id, digest, username, role, passwordHash, address, browser, since, lastUsed }) => ({
        id,
        digest,
        username,
        role,
        passwordHash,
        address,
        browser,
        since: time(since),
        lastUsed: time(lastUsed),
      })),
    }));
  }

  #fail(error: unknown): void {
    this.#input.log.error({ err: error }, 'the sessions cannot be written');
  }
}

export const digestOf = (token: string): string => createHash('sha256').update(token).digest('base64url');

export function newSession(): { readonly token: string; readonly id: string; readonly digest: string } {
  const token = randomBytes(32).toString('base64url');
  return { token, id: randomBytes(9).toString('base64url'), digest: digestOf(token) };
}

const browsers = [
  ['Edge', /\bEdgA?\//],
  ['Opera', /\bOPR\//],
  ['Samsung Internet', /\bSamsungBrowser\//],
  ['Firefox', /\b(?:Firefox|FxiOS)\//],
  ['Chrome', /(?:Chrome|CriOS)\//],
  ['Safari', /\bSafari\//],
  ['curl', /^curl\//],
] as const;
const systems = [
  ['Android', /\bAndroid\b/],
  ['iPhone', /\biPhone\b/],
  ['iPad', /\biPad\b/],
  ['Windows', /\bWindows\b/],
  ['macOS', /\bMacintosh\b/],
  ['ChromeOS', /\bCrOS\b/],
  ['Linux', /\bLinux\b/],
] as const;

/** `Firefox on Linux`, from a User-Agent field. */
export function browserName(userAgent: string): string {
  const text = userAgent.slice(0, 1000);
  const [browser = 'Unknown program'] = browsers.find(([, pattern]) => pattern.test(text)) ?? [];
  const system = systems.find(([, pattern]) => pattern.test(text));
  return system === undefined ? browser : `${browser} on ${system[0]}`;
}
