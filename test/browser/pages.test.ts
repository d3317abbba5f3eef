import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Browser, Page } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { freeListeners } from '../support/server-process.js';
import { accessibilityFaults, launchBrowser, overflow, visit } from './browser.js';
import { hostileMessage } from './hostile-message.js';
import { pagePaths } from './site-map.js';

const suite = suiteEnding();
const screenshots = process.env['POSTERN_SCREENSHOTS'];

const plainMessage = lines(
  'From: Anna Example <anna@example.org>',
  'To: postmaster@localhost',
  'Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe_aus_K=C3=B6ln?=',
  'Message-ID: <plain@example.org>',
  'Date: Fri, 20 Nov 2026 10:00:00 +0100',
  '',
  'Good day,',
  '',
  'a rather long line that has to be broken somewhere when the window is narrow '.repeat(3),
  `https://example.org/${'a-word-without-any-space-'.repeat(8)}`,
);

/** Mail for one route finds nobody: it is there to be looked at. */
const routes = {
  dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] },
  busy: { mx: ['127.0.0.1'], port: 1, domains: ['busy.example'] },
};
/** The source has something new, something for another server, and applied manually. */
const sync = { source: './central', server: 'mail1', intervalSeconds: 86_400, apply: 'manual' };
const plugins = JSON.stringify({ 'client-queue': { routes }, config: { sync } });
const config = `{ smtp: { listeners: ${freeListeners} }, plugins: ${plugins} }`;

async function fillSource(folder: string): Promise<void> {
  const central = join(folder, 'central');
  await mkdir(central);
  await writeFile(join(central, 'base.json5'), '{ smtp: { limits: { recipients: 50 } } }');
  await writeFile(join(central, 'mail2.json5'), '{}');
}

/** A deferred entry, a held one, a destination that is suspended, and one with more than 1,000 recipients. */
async function fillQueue({ admin }: InProcessServer): Promise<void> {
  await admin.json('/client/destinations/route:busy', { method: 'PUT', json: { suspendFor: 3600 } });
  const busy = Array.from({ length: 12 }, (_, letter) => ({
    mail: 'ann@dead.example',
    rcpt: Array.from({ length: 100 }, (_one, n) => `r${letter}-${n}@busy.example`),
    text: 'x',
  }));
  await admin.json('/client/queue', { json: { envelopes: busy } }, 202);
  const long = `${'a-word-without-spaces-'.repeat(2)}@dead.example`;
  const rcpt = ['bob@dead.example', long];
  const envelopes = [1, 2, 3].map((count) => ({ mail: 'ann@dead.example', rcpt, subject: `<b>Letter</b> ${count}` }));
  const { uids } = (await admin.json('/client/queue', { json: { envelopes } }, 202)) as { uids: string[] };
  for (const uid of uids) {
    const settled = async () => ((await admin.json(`/client/queue/${uid}`)) as { state: string }).state === 'deferred';
    while (!(await settled())) await pause(50);
  }
  await admin.json('/client/queue/hold', { json: { uid: uids[0], reason: 'to be seen' } });
  await admin.json('/client/destinations/route:dead', { method: 'PUT', json: { suspendFor: 3600, reason: 'moving' } });
}

describe('the pages in a browser', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;
  let paths: readonly string[];

  before(async () => {
    server = await startInProcess(suite, config, {}, fillSource);
    for (const message of [plainMessage, hostileMessage]) {
      await deliver(server.portOf('mx'), message);
    }
    await fillQueue(server);
    browser = await launchBrowser(suite);
    paths = await pagePaths(server.admin);
  });

  test('all of them are reached by links', () => {
    for (const path of [
      '/',
      '/store',
      '/store/localhost/postmaster',
      '/users',
      '/config',
      '/config/sync/status',
      '/docs',
      '/client/queue/list',
      '/client/send',
      '/pipeline',
    ]) {
      assert.ok(paths.includes(path), `${path} is not among ${paths.join(' ')}`);
    }
  });

  /** Controls and navigation that a printed page shows. */
  async function printed(page: Page): Promise<readonly string[]> {
    await page.emulateMedia({ media: 'print' });
    const shown = await page.evaluate<readonly string[]>(
      `[...document.querySelectorAll('button, nav, header, footer, select, [type=checkbox], [type=search]')]
        .filter((one) => one.checkVisibility()).map((one) => 'prints ' + one.outerHTML.slice(0, 100))`,
    );
    await page.emulateMedia({ media: 'screen' });
    return shown;
  }

  /** Titles of cards that the page does not show. */
  async function lostTitles(page: Page): Promise<readonly string[]> {
    return page.evaluate<readonly string[]>(
      `[...document.querySelectorAll('.brief [data-card=title]')]
        .filter((one) => one.textContent.trim() !== '' && !one.checkVisibility())
        .map((one) => 'does not show ' + one.outerHTML.slice(0, 100))`,
    );
  }

  /** Visits each page in both themes; the faults of all of them, by path. */
  async function inspect(width: number, what: 'everything' | 'layout'): Promise<readonly string[]> {
    const { context, page, misdeeds } = await visit(browser, server.base, { width });
    const faults: string[] = [];
    for (const path of paths) {
      await page.goto(path);
      const pixels = await overflow(page);
      const found = [
        ...(await accessibilityFaults(page, what)),
        ...(await lostTitles(page)),
        ...(pixels > 0 ? [`is ${pixels} pixels wider than the window`] : []),
      ];
      await page.emulateMedia({ colorScheme: 'dark' });
      found.push(...(await accessibilityFaults(page, 'contrast')), ...(await printed(page)));
      await page.emulateMedia({ colorScheme: 'light' });
      faults.push(
        ...[...found, ...misdeeds.complaints.splice(0), ...misdeeds.escapes.splice(0)].map(
          (fault) => `${path}: ${fault}`,
        ),
      );
    }
    await context.close();
    return faults;
  }

  for (const [width, what] of [
    [1280, 'everything'],
    [320, 'layout'],
  ] as const) {
    test(`at ${width} pixels none has an accessibility fault, a message in the console or a foreign request`, async () => {
      assert.deepEqual(await inspect(width, what), []);
    });
  }

  test('a fault would be seen', async () => {
    const { context, page, misdeeds } = await visit(browser, server.base, { width: 320 });
    await page.goto('/health');
    assert.equal(await overflow(page), 0);
    await page.evaluate(`{
      document.body.insertAdjacentHTML('beforeend', '<p style="color: white">x</p><img src="http://elsewhere.example/">');
      document.body.style.width = '900px';
    }`);
    assert.ok((await overflow(page)) > 0);
    assert.match((await accessibilityFaults(page, 'everything')).join('\n'), /^image-alt/m);
    assert.match(misdeeds.complaints.join('\n'), /style[\s\S]*img/i, 'inline style and foreign picture are refused');
    await context.close();
  });

  test('each is looked at', { skip: screenshots === undefined && 'POSTERN_SCREENSHOTS names no folder.' }, async () => {
    const folder = screenshots ?? '';
    await mkdir(folder, { recursive: true });
    for (const width of [1280, 320]) {
      for (const colorScheme of ['light', 'dark'] as const) {
        const { context, page } = await visit(browser, server.base, { width, colorScheme });
        for (const [index, path] of paths.entries()) {
          await page.goto(path);
          const name = `${`${index}`.padStart(2, '0')}${path.replace(/[^\w]+/g, '-').slice(0, 60)}-${width}-${colorScheme}.png`;
          await page.screenshot({ path: join(folder, name), fullPage: true });
        }
        await context.close();
      }
    }
  });
});
