import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { pino } from 'pino';
import type { Account } from '../../../core/contracts/accounts.js';
import type { KeptSession, KeptSessions } from '../../../core/contracts/browser-sessions.js';
import { SharedSessions } from '../../../core/http/shared-sessions.js';
import { problem } from '../../../core/problem.js';
import { isThe } from '../../kit/relay-queue/harness.js';
import { untilTrue } from '../../support/until.js';

/** A store in memory whose answers can be held up. */
class Store implements KeptSessions {
  readonly rows = new Map<string, KeptSession>();
  time = Date.UTC(2026, 10, 25, 12);
  isAway = false;
  reads = 0;
  /** Answers wait for it, with what was read before. */
  gate: Promise<void> = Promise.resolve();
  readonly listeners = new Set<(digests: readonly string[] | null) => void>();
  readonly clock = { now: () => this.time, monotonic: () => this.time };

  #answer<T>(value: T): Promise<T> {
    if (this.isAway) return Promise.reject(problem('unavailable', 'away'));
    return this.gate.then(() => value);
  }
  add(session: KeptSession): Promise<void> {
    if (!this.isAway) this.rows.set(session.digest, session);
    return this.#answer(undefined);
  }
  read(digests: readonly string[]): Promise<readonly KeptSession[]> {
    this.reads += 1;
    return this.#answer(digests.flatMap((digest) => this.rows.get(digest) ?? []));
  }
  of(username: string): Promise<readonly KeptSession[]> {
    return this.#answer([...this.rows.values()].filter((row) => row.username === username));
  }
  remove(digests: readonly string[]): Promise<void> {
    if (!this.isAway) for (const digest of digests) this.rows.delete(digest);
    return this.#answer(undefined);
  }
  use(times: ReadonlyMap<string, number>): Promise<void> {
    for (const [digest, lastUsed] of times) {
      const row = this.rows.get(digest);
      if (row !== undefined) this.rows.set(digest, { ...row, lastUsed });
    }
    return this.#answer(undefined);
  }
  watch(listener: (digests: readonly string[] | null) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
  ring(digests: readonly string[] | null): void {
    for (const listener of this.listeners) listener(digests);
  }
}

function server(store: Store) {
  const roster = new Map<string, { account: Account; hash: string }>();
  const changed = new Set<() => void>();
  let looked: () => void = () => undefined;
  const put = (username: string, hash: string): Account => {
    const account: Account = { username, role: 'admin' };
    roster.set(username, { account, hash });
    for (const tell of changed) tell();
    return account;
  };
  const sessions = new SharedSessions({
    store,
    accounts: {
      isInForce: (account) => roster.get(account.username)?.account === account,
      passwordHashOf: (account) => Promise.resolve(roster.get(account.username)?.hash),
      recognise: ({ username, passwordHash }) => {
        const entry = roster.get(username);
        return Promise.resolve(entry?.hash === passwordHash ? entry.account : undefined);
      },
      look: () => Promise.resolve(looked()),
      onChange: (tell) => changed.add(tell),
    },
    limits: () => ({ sessionIdleSeconds: 3600, sessionSeconds: 86_400, sessionsPerAccount: 3 }),
    log: pino({ level: 'silent' }),
  });
  const begin = async (account: Account) =>
    (await sessions.begin(account, { address: '::1', browser: 'Firefox' })) ?? '';
  const isIn = async (token: string) => (await sessions.find(token)) !== undefined;
  return { sessions, put, begin, isIn, onLook: (then: () => void) => (looked = then) };
}

describe('browser sessions that servers share', () => {
  const opened = () => {
    const store = new Store();
    const [one, other] = [server(store), server(store)];
    const anna = one.put('anna', 'first');
    other.put('anna', 'first');
    return { store, one, other, anna };
  };

  test('a session that is known costs no question', async () => {
    const { store, one, other, anna } = opened();
    const token = await one.begin(anna);
    for (let nth = 0; nth < 5; nth += 1) assert.equal(await one.isIn(token), true);
    assert.equal(store.reads, 0);
    for (let nth = 0; nth < 5; nth += 1) assert.equal(await other.isIn(token), true);
    assert.equal(store.reads, 1);
  });

  test('a thousand tokens that nobody has are two questions, one after the other', async () => {
    const { store, one } = opened();
    const tokens = Array.from({ length: 1000 }, (_, nth) => `nonsense${nth}`);
    const found = await Promise.all(tokens.map((token) => one.isIn(token)));
    assert.equal(found.includes(true), false);
    assert.ok(store.reads <= 2, `${store.reads}`);
  });

  test('an answer that was under way when the session ended does not bring it back', async () => {
    const { store, one, other, anna } = opened();
    const token = await one.begin(anna);
    let open: () => void = () => undefined;
    store.gate = new Promise((resolve) => (open = resolve));
    const late = other.isIn(token);
    await Promise.resolve();
    const [digest = ''] = store.rows.keys();
    store.rows.delete(digest);
    store.ring([digest]);
    open();
    await late;
    assert.equal(await other.isIn(token), false);

    const mine = await one.begin(anna);
    store.gate = new Promise((resolve) => (open = resolve));
    store.ring(null);
    await Promise.resolve();
    const ending = one.sessions.end('anna', () => true);
    open();
    assert.equal(await ending, 1);
    assert.equal(await one.isIn(mine), false);
  });

  test('ends what goes on in it, here and at the other server', async () => {
    const { store, one, other, anna } = opened();
    const token = await one.begin(anna);
    const left: string[] = [];
    for (const [name, { sessions }] of [
      ['one', one],
      ['other', other],
    ] as const) {
      const found = await sessions.find(token);
      assert.ok(found !== undefined);
      sessions.untilEnd(found.session, () => left.push(name));
    }
    await one.sessions.end('anna', () => true);
    assert.deepEqual(left, ['one']);
    store.ring(null);
    await untilTrue('the other has heard of it', async () => !(await other.isIn(token)));
    assert.deepEqual(left, ['one', 'other']);
  });

  test('is found at a server that has not yet heard of the account, and not ended by it', async () => {
    const { store, one, other } = opened();
    const ben = one.put('ben', 'new');
    const token = await one.begin(ben);
    assert.equal(await other.isIn(token), false);
    assert.equal(store.rows.size, 1, 'it is not for this server to end it');
    other.onLook(() => other.put('ben', 'new'));
    assert.equal(await other.isIn(token), true);
  });

  test('of an account with another password is over at once, and removed', async () => {
    const { store, one, other, anna } = opened();
    const token = await one.begin(anna);
    assert.equal(await other.isIn(token), true);
    other.put('anna', 'second');
    assert.equal(await other.isIn(token), false);
    assert.equal(store.rows.size, 0);
  });

  test('used at one server is not idle at the other', async () => {
    const { store, one, other, anna } = opened();
    const token = await one.begin(anna);
    assert.equal(await other.isIn(token), true);
    store.time += 3000 * 1000;
    assert.equal(await one.isIn(token), true);
    await one.sessions.close();
    store.time += 3000 * 1000;
    assert.equal(await other.isIn(token), true);
    store.time += 3601 * 1000;
    assert.equal(await other.isIn(token), false);
  });

  test('goes on for an hour while the store is away, if it was known', async () => {
    const { store, one, other, anna } = opened();
    const token = await one.begin(anna);
    store.isAway = true;
    store.time += 3500 * 1000;
    assert.equal(await one.isIn(token), true);
    await assert.rejects(other.isIn(token), isThe('unavailable'));
    await assert.rejects(one.begin(anna), isThe('unavailable'));
    await assert.rejects(
      one.sessions.end('anna', () => true),
      isThe('unavailable'),
    );
    store.time += 200 * 1000;
    await assert.rejects(one.isIn(token), isThe('unavailable'));
    store.isAway = false;
    assert.equal(await one.isIn(token), true);
  });
});
