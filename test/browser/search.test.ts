import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { accessibilityFaults, launchBrowser, overflow, visit } from './browser.js';

const suite = suiteEnding();

describe('the search in a browser', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;

  before(async () => {
    server = await startInProcess(suite);
    await server.admin.json('/users', { json: { username: 'ann@localhost' } }, 201);
    for (const [n, user] of ['ann', 'postmaster', 'ann'].entries()) {
      const message = lines('From: Eve <eve@sender.example>', `Subject: The minutes of meeting ${n}`, '', 'hello');
      await deliver(server.portOf('mx'), message, `${user}@localhost`);
    }
    browser = await launchBrowser(suite);
  });

  for (const javaScriptEnabled of [true, false]) {
    test(`a subject is found in three steps, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      const { context, page, misdeeds } = await visit(browser, server.base, { javaScriptEnabled });
      await page.goto('/users');
      if (javaScriptEnabled) await page.keyboard.press('/');
      else await page.getByRole('searchbox', { name: 'Search' }).focus();
      await page.keyboard.type('meeting 1');
      await page.keyboard.press('Enter');
      await page.getByRole('link', { name: 'The minutes of meeting 1' }).click();
      await page.getByRole('heading', { name: 'The minutes of meeting 1' }).waitFor();
      assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
      await context.close();
    });
  }

  test('results that come later take their place, and the page stays where it is', async () => {
    const { context, page, misdeeds } = await visit(browser, server.base);
    await page.goto('/search?q=minutes&wait=0');
    await page.getByText('2 of 2 mailboxes searched').waitFor();
    assert.equal(await page.locator('#mail tbody tr').count(), 3);
    assert.equal(await page.locator('#mail').count(), 1);
    assert.equal(new URL(page.url()).search, '?q=minutes&wait=0');
    assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
    await context.close();
  });

  for (const [width, colorScheme] of [
    [1280, 'light'],
    [320, 'dark'],
  ] as const) {
    test(`the results can be read by everyone, ${width} pixels wide, ${colorScheme}`, async () => {
      const { context, page } = await visit(browser, server.base, { width, colorScheme });
      for (const path of [
        '/search?q=minutes',
        '/search?q=ann%40localhost',
        '/search?q=port',
        '/search?q=qwertz',
        '/search',
      ]) {
        await page.goto(path);
        assert.deepEqual(await accessibilityFaults(page, 'everything'), [], path);
        assert.ok((await overflow(page)) <= 0, path);
        const folder = process.env['POSTERN_SCREENSHOTS'];
        const name = path.replaceAll(/\W+/g, '-');
        if (folder !== undefined)
          await page.screenshot({ path: `${folder}/search${name}-${width}.png`, fullPage: true });
      }
      await context.close();
    });
  }
});
