import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { freeListeners } from '../support/server-process.js';
import { until } from '../support/until.js';
import { launchBrowser, overflow, visit } from './browser.js';

const suite = suiteEnding();
const routes = {
  one: { mx: ['127.0.0.1'], port: 1, domains: ['one.example'] },
  two: { mx: ['127.0.0.1'], port: 1, domains: ['two.example'] },
};
const config = `{ smtp: { listeners: ${freeListeners} }, plugins: { 'client-queue': ${JSON.stringify({ routes })} } }`;

describe('the queue in a browser', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;

  before(async () => {
    server = await startInProcess(suite, config);
    for (const name of ['one', 'two'])
      await server.admin.json(`/client/destinations/route:${name}`, { method: 'PUT', json: { suspendFor: 3600 } });
    const subject = 'The minutes of the meeting of last week, with all that was decided';
    const envelopes = [...Array.from({ length: 30 }, () => ['one.example']), ['one.example', 'two.example']].map(
      (domains) => ({ mail: 'ann@one.example', rcpt: domains.map((one) => `bob@${one}`), subject }),
    );
    await server.admin.json('/client/queue', { json: { envelopes } }, 202);
    browser = await launchBrowser(suite);
  });

  for (const javaScriptEnabled of [true, false]) {
    test(`a number of the overview leads to its list, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      const { context, page } = await visit(browser, server.base, { javaScriptEnabled });
      await page.goto('/client/queue/list');
      await page.getByRole('link', { name: '1 for route:two', exact: false }).first().click();
      const rows = page.locator('#entry-list tbody tr');
      await rows.first().waitFor();
      assert.equal(await rows.count(), 1);
      // Without JavaScript the browser scrolls to the list when the page has its style, which may be later than the row.
      await until('the row to be in the window', async () => {
        const box = await rows.first().boundingBox();
        return box !== null && box.y >= 0 && box.y + box.height <= 900 ? true : undefined;
      });
      await context.close();
    });
  }

  test('keys move through the list, choose, go up, and can be turned off', async () => {
    const { context, page } = await visit(browser, server.base);
    await page.goto('/client/queue/list?state=all');
    const link = (row: number) => page.locator('#entry-list tbody tr').nth(row).locator('a[href]').first();
    const isFocused = async (row: number) =>
      (await page.locator('*:focus').count()) > 0 &&
      (await page.locator('*:focus').first().getAttribute('href')) === (await link(row).getAttribute('href'));
    await page.keyboard.press('j');
    assert.ok(await isFocused(0));
    await page.keyboard.press('j');
    await page.keyboard.press('k');
    assert.ok(await isFocused(0));
    await page.keyboard.press('x');
    assert.ok(await page.locator('#entry-list tbody input[type=checkbox]').first().isChecked());
    await link(0).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/client\/queue\/[0-9a-z]{20}/);
    await page.keyboard.press('/');
    await page.keyboard.type('juxk');
    const field = page.getByRole('searchbox', { name: 'Search' });
    assert.equal(await field.inputValue(), 'juxk');
    await page.keyboard.press('Escape');
    assert.equal(await field.inputValue(), 'juxk');
    assert.equal(await page.locator('[data-find]:focus').count(), 0);
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('u');
    await page.waitForURL(/\/client\/queue\/list/);
    await page.getByRole('button', { name: 'Keys' }).click();
    await page.getByLabel('Do not use these keys').check();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.locator('h1').click();
    await page.keyboard.press('j');
    assert.equal(await isFocused(0), false);
    await context.close();
  });

  test('each filter is a chip that takes it away, and the list comes before the overview', async () => {
    const { context, page } = await visit(browser, server.base, { javaScriptEnabled: false });
    await page.goto('/client/queue/list?state=all&minAttempts=0');
    const chips = page.getByRole('list', { name: 'Filters' }).getByRole('link');
    const names = async () => (await chips.allInnerTexts()).map((text) => text.split(' ×')[0]);
    assert.deepEqual(await names(), ['State: all', 'Attempts, at least: 0']);
    const [list, overview] = await Promise.all([
      page.locator('#entry-list').boundingBox(),
      page.locator('#overview').boundingBox(),
    ]);
    assert.ok(list !== null && overview !== null && list.y < overview.y);
    await chips.first().click();
    assert.deepEqual(await names(), ['Attempts, at least: 0']);
    await chips.first().click();
    assert.equal(await chips.count(), 0);
    await context.close();
  });

  test('a refresh of the overview keeps focus and scroll position', async () => {
    const { context, page } = await visit(browser, server.base, { width: 500 });
    await page.goto('/client/queue/list');
    const cell = page.getByRole('link', { name: '31 for route:one', exact: false }).first();
    await cell.focus();
    await page.evaluate(`document.querySelector('.heat').scrollLeft = 60; window.scrollTo(0, 200)`);
    const refresh = `htmx.ajax('GET', '/client/queue/statistics', { target: '#overview', swap: 'innerHTML', select: '#overview-content' })`;
    const state = `({
      label: document.activeElement.getAttribute('aria-label'),
      left: document.querySelector('.heat').scrollLeft,
      top: window.scrollY,
    })`;
    const before = await page.evaluate<{ readonly label: string | null }>(state);
    assert.match(before.label ?? '', /^31 for route:one/);
    await page.evaluate(`document.querySelector('#overview-content').dataset.old = 'yes'`);
    await page.evaluate(refresh);
    await page.locator('#overview-content:not([data-old])').waitFor();
    assert.deepEqual(await page.evaluate(state), before);
    await context.close();
  });

  test('the columns of a list stay where they are, whatever is in it', async () => {
    const { context, page } = await visit(browser, server.base);
    await server.admin.json('/users', { json: { username: 'b', aliases: ['one-of-many', 'another-long-alias'] } }, 201);
    await server.admin.json('/users', { json: { username: 'somebody-with-a-very-long-name', quota: '1.5 GB' } }, 201);
    for (const [list, ids, searches] of [
      ['/users', '#users', ['', 'somebody', 'one-of-many']],
      ['/client/queue/list', '.heat, #entry-list', ['', 'two.example']],
    ] as const) {
      const found = new Set<string>();
      for (const search of searches) {
        await page.goto(`${list}?q=${search}`);
        const places = `[...document.querySelectorAll('${ids}')].flatMap((one) => [...one.querySelectorAll('thead th')].map((cell) => Math.round(cell.getBoundingClientRect().x)))`;
        found.add(String(await page.evaluate<readonly number[]>(places)));
      }
      assert.equal(found.size, 1, [...found].join('\n'));
    }
    await context.close();
  });

  test('the columns of folders and mailboxes stay where they are, whatever is in them', async () => {
    const { context, page } = await visit(browser, server.base);
    const places = async (path: string) => {
      await page.goto(path);
      const cells = `[...document.querySelectorAll('.table thead th')].map((cell) => Math.round(cell.getBoundingClientRect().x))`;
      return page.evaluate<readonly number[]>(cells);
    };
    const pages = ['/store/localhost/postmaster', '/store/localhost', '/store'];
    const before: (readonly number[])[] = [];
    for (const path of pages) before.push(await places(path));
    const name = 'a folder whose name is as long as names of folders are in some mailboxes of some people';
    await server.admin.json('/store/localhost/postmaster/folders', { json: { name } }, 201);
    await server.admin.json('/users', { json: { username: 'another-one-with-a-very-long-name-for-a-mailbox' } }, 201);
    for (const [index, path] of pages.entries()) assert.deepEqual(await places(path), before[index], path);
    assert.equal(await overflow(page), 0);
    await context.close();
  });

  test('a page says that the site is suspended only when it is', async () => {
    await server.admin.json('/client/destinations/lone.example', { method: 'PUT', json: { suspendFor: 3600 } });
    const { context, page } = await visit(browser, server.base);
    await page.goto('/client/destinations/lone.example');
    await page.getByRole('button', { name: 'Resume' }).waitFor();
    assert.equal(await page.getByText('The site is suspended').count(), 0);
    await context.close();
  });

  test('the theme goes back to automatic, and a notice leaves the address', async () => {
    const { context, page } = await visit(browser, server.base);
    await page.goto('/client/destinations/lone.example');
    await page.getByRole('button', { name: 'Save limits' }).click();
    await page.waitForURL((url) => !url.search.includes('notice'));
    assert.match(await page.title(), /^lone\.example · .+ · Postern$/);
    const theme = page.getByRole('button', { name: 'Theme' });
    const titles: unknown[] = [];
    for (const inForce of ['light', 'dark', null]) {
      await theme.click();
      titles.push(await theme.getAttribute('title'));
      await page.reload();
      assert.equal(await page.evaluate('document.documentElement.dataset.theme ?? null'), inForce);
      assert.equal(await theme.getAttribute('title'), titles.at(-1));
    }
    assert.deepEqual(titles, ['Theme: light', 'Theme: dark', 'Theme: automatic, now light']);
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.getByRole('button', { name: 'Theme: automatic, now dark' }).waitFor();
    await context.close();
  });

  test('on a phone each row is a card of at most three lines', async () => {
    const word = 'a-word-without-any-space-in-it-'.repeat(2).slice(0, 60);
    const aliases = Array.from({ length: 9 }, (_, n) => `further-alias-${n}`);
    await server.admin.json('/users', { json: { username: word, quota: '1.5 GB', aliases } }, 201);
    await server.admin.json(`/store/localhost/${word}/folders`, { json: { name: word } }, 201);
    const mail = `ann@${word}.example`;
    const headers = { 'Content-Type': 'message/rfc822' };
    const letter = `From: ${mail}\r\nSubject: ${word.repeat(3)}\r\n\r\n${word.repeat(9)}\r\n`;
    const path = `/store/localhost/${word}/folders/INBOX`;
    await server.admin.request(`${path}/messages?unread=true`, { body: letter, headers });
    const envelopes = [1, 2].map(() => ({ mail, rcpt: ['bob@one.example', `${word}@one.example`], subject: word }));
    const { uids } = (await server.admin.json('/client/queue', { json: { envelopes } }, 202)) as { uids: string[] };
    await server.admin.json('/client/queue/hold', { json: { uid: uids[0], reason: word.repeat(3) } });
    const { context, page } = await visit(browser, server.base, { width: 320 });
    for (const [list, rows] of [
      ['/client/queue/list', '#entry-list tbody tr'],
      [`/trace?address=${mail}`, 'main tbody tr'],
      ['/users', '#users tbody tr'],
      ['/store/localhost', 'main tbody tr'],
      [`/store/localhost/${word}`, 'main tbody tr'],
      [path, '.messages > li'],
    ] as const) {
      await page.goto(list);
      const heights = await page.evaluate<readonly number[]>(
        `[...document.querySelectorAll('${rows}')].map((row) => row.getBoundingClientRect().height)`,
      );
      assert.ok(heights.length > 0 && Math.max(...heights) < 4 * 22.5, `${list}: ${heights.join(' ')}`);
      assert.equal(await overflow(page), 0, list);
    }
    await page.goto('/client/queue/list');
    const row = page.locator('#entry-list tbody tr').first();
    const [card, tick, what] = await Promise.all([
      row.boundingBox(),
      row.locator('input[type=checkbox]').boundingBox(),
      row.locator('.entry-what a').boundingBox(),
    ]);
    assert.ok(card !== null && tick !== null && what !== null);
    assert.ok(tick.x + tick.width <= what.x && tick.y >= card.y && tick.y < what.y + 30);
    await context.close();
  });
});
