import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Documents, SiteShares } from '../../core/contracts/cluster.js';
import type { AuditEntry, AuditPage, AuditQuery, AuditReader, KeptAnswers } from '../../core/contracts/http-records.js';
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
      shares.use('site:mx.example.org', limits, { running: 0, waiting: true });
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
