import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { Views } from '../../../core/http/views.js';
import { redactText } from '../../../core/log/redact.js';
import { isStartError } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

interface Fixture {
  readonly views: Views;
  /** Of the plugin `greylist`. */
  readonly folder: string;
}

async function fixture(t: TestContext, page: string): Promise<Fixture> {
  const root = await temporaryFolder(t);
  mkdirSync(join(root, 'users'));
  writeFileSync(join(root, 'users', 'page.njk'), 'ours');
  const folder = await temporaryFolder(t);
  writeFileSync(join(folder, 'page.njk'), page);
  return { views: new Views({ root, asset: (name) => `/assets/${name}`, clock: systemClock }), folder };
}

describe('views of a plugin', () => {
  test('a broken view is refused with its line before anybody asks for it, and leaves nothing', async (t) => {
    const { views, folder } = await fixture(t, 'one\n{% if x %}\n{{ y | }}\n');
    assert.throws(
      () => views.prepare('greylist', folder),
      (error) => isStartError(error) && error.message.startsWith('Plugin greylist, view page.njk:3: '),
    );
    assert.throws(() => views.render('greylist/page.njk', {}), /template not found/);
  });

  test('what is not expected in a view is named, and not masked as a secret', async (t) => {
    const { views, folder } = await fixture(t, '{% if %}{% endif %}');
    assert.throws(
      () => views.prepare('greylist', folder),
      (error) => isStartError(error) && redactText(error.message) === 'Plugin greylist, view page.njk:1: unexpected %}',
    );
  });

  test('what is edited counts when the plugin is added again, not before', async (t) => {
    const { views, folder } = await fixture(t, 'first {{ n }}');
    const undo = views.prepare('greylist', folder)();
    writeFileSync(join(folder, 'page.njk'), 'second {{ n }}');
    assert.equal(views.render('greylist/page.njk', { n: 1 }), 'first 1');
    undo();
    assert.throws(() => views.render('greylist/page.njk', {}), /template not found/);
    views.prepare('greylist', folder)();
    assert.equal(views.render('greylist/page.njk', { n: 2 }), 'second 2');
  });

  test('what was read goes into force again, whatever is on the disk by then', async (t) => {
    const { views, folder } = await fixture(t, 'first {{ n }}');
    const register = views.prepare('greylist', folder);
    const undo = register();
    writeFileSync(join(folder, 'page.njk'), '{% broken');
    assert.throws(() => views.prepare('greylist', folder), /view page\.njk:1: /);
    undo();
    register();
    assert.equal(views.render('greylist/page.njk', { n: 3 }), 'first 3');
  });

  test('a plugin that takes the place of a built-in one is shown with its own views', async (t) => {
    const { views, folder } = await fixture(t, 'theirs');
    assert.equal(views.render('users/page.njk', {}), 'ours');
    const undo = views.prepare('users', folder)();
    assert.equal(views.render('users/page.njk', {}), 'theirs');
    undo();
    assert.equal(views.render('users/page.njk', {}), 'ours');
  });

  test('a folder that cannot be used is refused with a sentence', async (t) => {
    const { views, folder } = await fixture(t, '');
    assert.throws(() => views.prepare('greylist', 'views'), /views is not an absolute path/);
    assert.throws(() => views.prepare('greylist', join(folder, 'nothing')), /is not a folder that can be read/);
    assert.throws(() => views.prepare('macros', folder), /macros\/ is the server's own/);
  });
});
