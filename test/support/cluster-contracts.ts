import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Documents } from '../../core/contracts/cluster.js';
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
