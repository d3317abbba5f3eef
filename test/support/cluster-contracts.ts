import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Documents, SiteShares } from '../../core/contracts/cluster.js';
import type { AuditEntry, AuditPage, AuditQuery, AuditReader, KeptAnswers } from '../../core/contracts/http-records.js';
import type { UserRecord, UserRecords } from '../../core/contracts/user-records.js';
import { isProblem } from '../../core/problem.js';
import type { Ending } from './temporary-folder.js';

/** Opens something over a fresh store; the second call of what it returns is another server, or the next process. */
type Opened<T> = (t: Ending) => Promise<() => T | Promise<T>>;

/** What every provider of `postern.documents` does. */
export function documentsContract(provider: string, opened: Opened<Documents>): void {
  describe(`documents of ${provider}`, () => {
    test('a document is what was written last, also after a restart', async (t) => {
      const open = await opened(t);
      const one = (await open()).get('example');
      assert.equal(await one.read(), undefined);
      const version = await one.replace('first', undefined);
      assert.ok(version !== undefined);
      assert.ok((await one.replace('second', version)) !== undefined);
      assert.equal((await one.read())?.text, 'second');
      assert.equal((await (await open()).get('example').read())?.text, 'second');
      assert.equal(await (await open()).get('other').read(), undefined);
    });

    test('an outdated version replaces nothing', async (t) => {
      const open = await opened(t);
      const one = (await open()).get('example');
      const first = await one.replace('first', undefined);
      await one.replace('second', first);
      assert.equal(await one.replace('late', first), undefined);
      assert.equal(await one.replace('late', undefined), undefined);
      assert.equal((await one.read())?.text, 'second');
    });

    test('of two that replace the same version at the same time one succeeds', async (t) => {
      const open = await opened(t);
      const one = (await open()).get('example');
      const version = await one.replace('first', undefined);
      const results = await Promise.all(['left', 'right'].map((text) => one.replace(text, version)));
      assert.equal(results.filter((result) => result !== undefined).length, 1);
    });
  });
}

/** What every provider of `postern.site-shares` does. */
export function siteSharesContract(provider: string, opened: Opened<SiteShares>): void {
  describe(`shares of ${provider}`, () => {
    const limits = { maxConnections: 10, ratePerMinute: 60, suspended: false };

    test('a server that has work gets a part of the limits, and never more than all', async (t) => {
      const shares = await (await opened(t))();
      const changed = new Promise<void>((resolve) => shares.onChange(() => resolve()));
      shares.use('site:mx.example.org', limits, { running: 0, waiting: true, idleMs: 0 });
      const share = () => shares.of('site:mx.example.org', limits);
      if (share().maxConnections === 0) await changed;
      assert.ok(share().maxConnections >= 1 && share().maxConnections <= 10);
      assert.ok((share().ratePerMinute ?? 0) > 0 && (share().ratePerMinute ?? Infinity) <= 60);
      assert.equal(share().suspended, false);
    });

    test('what may get nothing gets nothing', async (t) => {
      const shares = await (await opened(t))();
      assert.equal(shares.of('site:mx.example.org', { ...limits, suspended: true }).suspended, true);
      assert.equal(shares.of('site:mx.example.org', { ...limits, maxConnections: 0 }).maxConnections, 0);
    });
  });
}

/** What every provider of `postern.kept-answers` does. */
export function keptAnswersContract(provider: string, opened: Opened<KeptAnswers>): void {
  describe(`answers of ${provider}`, () => {
    const key = 'a'.repeat(64);
    const answer = { fingerprint: 'f', status: 201, headers: { Location: '/one' }, body: 'text' };

    test('an answer is kept as it was, also after a restart', async (t) => {
      const open = await opened(t);
      const answers = await open();
      const release = await answers.claim(key);
      assert.equal(await answers.find(key), undefined);
      await answers.keep(key, answer);
      await release?.();
      assert.deepEqual(await answers.find(key), answer);
      assert.deepEqual(await (await open()).find(key), answer);
      assert.equal(await answers.find('b'.repeat(64)), undefined);
    });

    test('a key belongs to one request at a time, and to the next one after its release', async (t) => {
      const answers = await (await opened(t))();
      const claims = await Promise.all([answers.claim(key), answers.claim(key)]);
      const [release, ...others] = claims.filter((claim) => claim !== undefined);
      assert.ok(release !== undefined && others.length === 0);
      assert.notEqual(await answers.claim('b'.repeat(64)), undefined);
      await release();
      assert.equal(await answers.find(key), undefined);
      assert.notEqual(await answers.claim(key), undefined);
    });
  });
}

/**
 * What every provider of `postern.audit-reader` does.
 *
 * @param opened gives a reader once these lines are written
 */
export function auditReaderContract(
  provider: string,
  opened: (t: Ending, lines: readonly AuditEntry[]) => Promise<AuditReader>,
): void {
  describe(`the audit log of ${provider}`, () => {
    const lines = Array.from({ length: 9 }, (_, number) => ({
      at: new Date(Date.UTC(2026, 0, 1, 12, number)).toISOString(),
      by: number % 2 === 0 ? 'anna' : 'bob',
      from: '192.0.2.1',
      requestId: `request-${number}`,
      method: number === 4 ? 'DELETE' : 'POST',
      route: '/users/{username}',
      params: { username: `user${number}` },
      status: number === 5 ? 409 : 200,
      action: 'change a user',
      selector: { password: 'secret' },
    }));
    const numbers = ({ items }: AuditPage) => items.map(({ requestId }) => Number(requestId.slice('request-'.length)));

    test('is read from the newest line to the oldest, page by page', async (t) => {
      const reader = await opened(t, lines);
      const seen: number[] = [];
      for (let cursor: string | undefined, page = 0; page < 5; page += 1) {
        const found = await reader.read({ limit: 4, cursor });
        assert.ok(found.total === 9 || found.total === null);
        seen.push(...numbers(found));
        if (found.nextCursor === null) break;
        cursor = found.nextCursor;
      }
      assert.deepEqual(seen, [8, 7, 6, 5, 4, 3, 2, 1, 0]);
    });

    test('is filtered by each field, and shows no secret', async (t) => {
      const reader = await opened(t, lines);
      const found = async (query: Partial<AuditQuery>) => numbers(await reader.read({ limit: 50, ...query }));
      assert.deepEqual(await found({ who: 'BO' }), [7, 5, 3, 1]);
      assert.deepEqual(await found({ from: '192.0.2' }), [8, 7, 6, 5, 4, 3, 2, 1, 0]);
      assert.deepEqual(await found({ method: 'DELETE' }), [4]);
      assert.deepEqual(await found({ path: '/users/user3' }), [3]);
      assert.deepEqual(await found({ action: 'nothing of the kind' }), []);
      assert.deepEqual(await found({ result: 'refused' }), [5]);
      assert.deepEqual(await found({ since: lines[6]?.at }), [8, 7, 6]);
      assert.deepEqual(await found({ until: lines[2]?.at }), [1, 0]);
      assert.doesNotMatch(JSON.stringify(await reader.read({ limit: 50 })), /"secret"/);
      await assert.rejects(reader.read({ limit: 4, cursor: 'nonsense' }));
    });
  });
}

/** What every provider of `postern.user-records` does. */
export function userRecordsContract(provider: string, opened: Opened<UserRecords>): void {
  describe(`user records of ${provider}`, () => {
    const record = (username: string, given: Partial<UserRecord> = {}): UserRecord => ({
      username,
      passwordHash: null,
      aliases: [],
      quota: null,
      disabled: false,
      createdAt: '2026-01-02T03:04:05.000Z',
      ...given,
    });
    const problemOf = (work: Promise<unknown>): Promise<string> =>
      work.then(
        () => 'none',
        (error: unknown) => (isProblem(error) ? error.problem : String(error)),
      );

    test('a user is found by all names as soon as the change resolves, also after a restart', async (t) => {
      const open = await opened(t);
      const records = await open();
      await records.add(record('bob@b.example', { aliases: ['bobby@a.example'], quota: 5 }));
      await records.add(record('zoe@a.example'));
      await records.add(record('ann@b.example'));
      const names = ['zoe@a.example', 'ann@b.example', 'bob@b.example'];
      assert.deepEqual([records.list().map(({ username }) => username), records.count], [names, 3]);
      assert.equal(records.named('bobby@a.example')?.username, 'bob@b.example');
      assert.equal(records.get('bobby@a.example'), undefined);
      assert.equal(records.get('bob@b.example')?.quota, 5);
      assert.deepEqual((await open()).list(), records.list());
    });

    test('each name has one user', async (t) => {
      const records = await (await opened(t))();
      await records.add(record('ann@a.example', { aliases: ['info@a.example'] }));
      await records.add(record('bob@a.example'));
      assert.equal(await problemOf(records.add(record('info@a.example'))), 'conflict');
      const taken = records.change('bob@a.example', (bob) => ({ ...bob, aliases: ['info@a.example'] }));
      assert.equal(await problemOf(taken), 'conflict');
      assert.equal(await problemOf(records.remove('eve@a.example')), 'not-found');
      assert.equal(records.count, 2);
    });

    test('changes at the same time add up, and one that throws changes nothing', async (t) => {
      const records = await (await opened(t))();
      await records.add(record('ann@a.example', { quota: 0 }));
      const raise = () => records.change('ann@a.example', (ann) => ({ ...ann, quota: (ann.quota ?? 0) + 1 }));
      await Promise.all(Array.from({ length: 5 }, raise));
      const refuse = (): never => {
        throw new Error('refused');
      };
      await assert.rejects(records.change('ann@a.example', refuse));
      await assert.rejects(records.remove('ann@a.example', refuse));
      assert.equal(records.get('ann@a.example')?.quota, 5);
    });
  });
}
