import { LRUCache } from 'lru-cache';
import type { Account } from '../contracts/accounts.js';
import type { KeptSession, KeptSessions } from '../contracts/browser-sessions.js';
import type { Log } from '../log/log.js';
import type { Accounts } from './accounts.js';
import {
  type BrowserSession,
  type BrowserSessions,
  digestOf,
  maxSessions,
  newSession,
  type SessionLimits,
} from './sessions.js';

interface KnownSession extends KeptSession {
  lastUsed: number;
  /** When the store was last heard of it, by its monotonic clock. */
  checkedAt: number;
  /** Undefined until the account is found unchanged. */
  account: Account | undefined;
  /** Ends the streams of this session. */
  readonly leaves: Set<() => void>;
}

interface SharedSessionsInput {
  readonly store: KeptSessions;
  readonly accounts: Pick<Accounts, 'isInForce' | 'passwordHashOf' | 'recognise' | 'look' | 'onChange'>;
  readonly limits: () => SessionLimits;
  readonly log: Log;
}

/** While the store does not answer, a known session stays valid for that time. */
const maxUncheckedMs = 3_600_000;
/** The time of last use is written this late; a crash loses it. Less than the least `sessionIdleSeconds`. */
const writeUseAfterMs = 15_000;
/** Digests of sessions that have ended: an answer of the store that is older than that brings none back. */
const maxEnded = 10_000;

/** Browsers that signed in with the page at any server of a cluster. What is known here costs no question. */
export class SharedSessions implements BrowserSessions {
  readonly #input: SharedSessionsInput;
  readonly #known = new Map<string, KnownSession>();
  readonly #ended = new LRUCache<string, true>({ max: maxEnded });
  readonly #used = new Set<string>();
  readonly #wanted = new Set<string>();
  #next: Promise<void> | undefined;
  #reading: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  readonly #unwatch: () => void;

  constructor(input: SharedSessionsInput) {
    this.#input = input;
    input.accounts.onChange(() => this.#endUnfit());
    this.#unwatch = input.store.watch((digests) => {
      void this.#read(digests ?? [...this.#known.keys()]).catch(() => undefined);
    });
  }

  async begin(account: Account, from: Pick<BrowserSession, 'address' | 'browser'>): Promise<string | undefined> {
    const { store, accounts, limits } = this.#input;
    const passwordHash = await accounts.passwordHashOf(account);
    if (passwordHash === undefined) return undefined;
    const now = store.clock.now();
    const { token, ...made } = newSession();
    const { username, role } = account;
    const session = { ...made, ...from, username, role, passwordHash, since: now, lastUsed: now };
    const { sessionIdleSeconds, sessionSeconds, sessionsPerAccount } = limits();
    await store.add(session, {
      perAccount: sessionsPerAccount,
      inAll: maxSessions,
      sinceAfter: now - sessionSeconds * 1000,
      usedAfter: now - sessionIdleSeconds * 1000 - 2 * writeUseAfterMs,
    });
    this.#take(session);
    return token;
  }

  async find(token: string): Promise<{ readonly session: BrowserSession; readonly account: Account } | undefined> {
    const digest = digestOf(token);
    if (this.#ended.has(digest)) return undefined;
    const { clock } = this.#input.store;
    let session = this.#known.get(digest);
    if (session === undefined || !this.#isFit(session) || clock.monotonic() - session.checkedAt > maxUncheckedMs) {
      await this.#read([digest]);
      session = this.#known.get(digest);
      if (session === undefined) return undefined;
      if (!this.#isFit(session)) {
        this.#forget([digest]);
        return undefined;
      }
    }
    session.account ??= await this.#accountOf(session);
    const { account } = session;
    if (account === undefined || this.#known.get(digest) !== session) return undefined;
    session.lastUsed = clock.now();
    this.#used.add(digest);
    this.#timer ??= setTimeout(() => void this.#writeUse(), writeUseAfterMs).unref();
    return { session, account };
  }

  /** Another server may have changed the account, and begun the session, a moment ago. */
  async #accountOf(session: KnownSession): Promise<Account | undefined> {
    const { accounts } = this.#input;
    const account = await accounts.recognise(session);
    if (account !== undefined) return account;
    await accounts.look();
    return accounts.recognise(session);
  }

  async list(username: string): Promise<readonly BrowserSession[]> {
    const own = (await this.#input.store.of(username)).filter((session) => this.#isFit(session));
    const lastUsed = ({ digest, lastUsed: kept }: KeptSession) =>
      Math.max(kept, this.#known.get(digest)?.lastUsed ?? kept);
    return own
      .map((session) => ({ ...session, lastUsed: lastUsed(session) }))
      .toSorted((a, b) => b.lastUsed - a.lastUsed);
  }

  async end(username: string, fits: (session: BrowserSession) => boolean): Promise<number> {
    const { store } = this.#input;
    const ended = (await store.of(username)).filter(fits).map(({ digest }) => digest);
    if (ended.length > 0) await store.remove(ended);
    this.#endHere(ended);
    return ended.length;
  }

  untilEnd(session: BrowserSession, leave: () => void): () => void {
    const known = [...this.#known.values()].find(({ id }) => id === session.id);
    known?.leaves.add(leave);
    return () => known?.leaves.delete(leave);
  }

  async close(): Promise<void> {
    this.#unwatch();
    if (this.#timer !== undefined) await this.#writeUse();
  }

  #isFit({ since, lastUsed }: Pick<KeptSession, 'since' | 'lastUsed'>): boolean {
    const { sessionIdleSeconds, sessionSeconds } = this.#input.limits();
    const now = this.#input.store.clock.now();
    return now - lastUsed <= sessionIdleSeconds * 1000 && now - since <= sessionSeconds * 1000;
  }

  /** Asks the store, once at a time for all who ask meanwhile: unknown tokens cost it no more than one question. */
  #read(digests: readonly string[]): Promise<void> {
    for (const digest of digests) this.#wanted.add(digest);
    if (this.#next === undefined) {
      this.#next = this.#reading.then(() => this.#readWanted());
      this.#reading = this.#next.catch(() => undefined);
    }
    return this.#next;
  }

  async #readWanted(): Promise<void> {
    const wanted = [...this.#wanted];
    this.#wanted.clear();
    this.#next = undefined;
    if (wanted.length === 0) return;
    const found = new Map((await this.#input.store.read(wanted)).map((session) => [session.digest, session]));
    for (const session of found.values()) this.#take(session);
    this.#forget(wanted.filter((digest) => !found.has(digest)));
  }

  #take(session: KeptSession): void {
    const { digest, lastUsed } = session;
    if (this.#ended.has(digest)) return;
    const checkedAt = this.#input.store.clock.monotonic();
    const known = this.#known.get(digest);
    if (known === undefined) {
      this.#known.set(digest, { ...session, checkedAt, account: undefined, leaves: new Set() });
      return;
    }
    known.checkedAt = checkedAt;
    known.lastUsed = Math.max(known.lastUsed, lastUsed);
  }

  #forget(digests: readonly string[]): void {
    for (const digest of digests) {
      const known = this.#known.get(digest);
      this.#known.delete(digest);
      this.#used.delete(digest);
      for (const leave of known?.leaves ?? []) leave();
    }
  }

  #endHere(digests: readonly string[]): void {
    for (const digest of digests) this.#ended.set(digest, true);
    this.#forget(digests);
  }

  /** After a change of accounts. */
  #endUnfit(): void {
    const { store, accounts, log } = this.#input;
    const unfit = [...this.#known.values()]
      .filter(({ account }) => account !== undefined && !accounts.isInForce(account))
      .map(({ digest }) => digest);
    if (unfit.length === 0) return;
    this.#endHere(unfit);
    // No server recognises their account any more.
    store.remove(unfit).catch((error: unknown) => log.warn({ err: error }, 'ended sessions are still in the database'));
  }

  async #writeUse(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const times = new Map(
      [...this.#used].flatMap((digest) => {
        const lastUsed = this.#known.get(digest)?.lastUsed;
        return lastUsed === undefined ? [] : [[digest, lastUsed] as const];
      }),
    );
    this.#used.clear();
    await this.#input.store.use(times).catch(() => {
      for (const digest of times.keys()) this.#used.add(digest);
    });
  }
}
