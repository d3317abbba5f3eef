import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Documents, SiteShares } from '../../core/contracts/cluster.js';
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
