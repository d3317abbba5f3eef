import assert from 'node:assert/strict';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { FileWatch } from '../../../plugins/config/file-watch.js';
import { withTimeout } from '../../../core/concurrency.js';
import { siteEntry, watchedCode } from '../../../core/host/site-files.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

/** Watches `postern.json5`, and the plugin `code/site` elsewhere; `noticed` waits for what the change brings. */
async function watched(t: TestContext) {
  const folder = await temporaryFolder(t);
  const [config, site] = [join(folder, 'etc', 'postern.json5'), join(folder, 'code', 'site')];
  await mkdir(join(folder, 'etc'));
  await mkdir(site, { recursive: true });
  await writeFile(config, '{}');
  await writeFile(join(site, 'index.js'), 'export const version = 0;');
  let changes = 0;
  let wake: () => void = () => undefined;
  let refusals = 0;
  const watch = new FileWatch({
    path: config,
    code: () => watchedCode([siteEntry(site)], folder),
    changed: () => {
      changes += 1;
      if ((refusals -= 1) >= 0) return Promise.reject(new Error('not now'));
      wake();
      return Promise.resolve();
    },
    log: pino({ level: 'silent' }),
    quietMs: 20,
  });
  await watch.start();
  t.after(() => watch.stop());
  const noticed = async (change: () => Promise<void>): Promise<void> => {
    const before = changes;
    const seen = new Promise<void>((resolve) => (wake = resolve));
    await change();
    await withTimeout(5000, seen, 'nobody noticed');
    assert.ok(changes > before);
    // What follows is another change.
    await new Promise((resolve) => setTimeout(resolve, 100));
  };
  /** The next changes are not taken, so many times. */
  const refuse = (times: number): void => void (refusals = times);
  return { folder, config, site, noticed, refuse };
}

const version = (site: string, number: number) =>
  writeFile(join(site, 'index.js'), `export const version = ${number};`);

test('another content of the file or of the code is noticed', async (t) => {
  const { config, site, noticed } = await watched(t);
  await noticed(() => writeFile(config, '{ domains: ["a.example"] }'));
  await noticed(() => version(site, 1));
});

test('a folder that takes the place of another is watched as that was', async (t) => {
  const { folder, site, noticed } = await watched(t);
  const fresh = join(folder, 'fresh');
  await mkdir(fresh);
  await version(fresh, 1);
  await noticed(async () => {
    await rename(site, join(folder, 'old'));
    await rename(fresh, site);
  });
  await noticed(() => version(site, 2));
});

test('a folder that is removed and comes back is watched again, before anything is in it', async (t) => {
  const { site, noticed } = await watched(t);
  await noticed(() => rm(site, { recursive: true }));
  await noticed(() => mkdir(site));
  await noticed(() => version(site, 1));
  await noticed(() => version(site, 2));
});

test('a change that could not be applied is reported again', async (t) => {
  const { config, noticed, refuse } = await watched(t);
  refuse(2);
  await noticed(() => writeFile(config, '{ domains: ["a.example"] }'));
});
