import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { freeListeners } from '../support/server-process.js';
import { accessibilityFaults, launchBrowser, visit } from './browser.js';

const suite = suiteEnding();
const routes = { one: { mx: ['127.0.0.1'], port: 1, domains: ['one.example'] } };
const config = `{ smtp: { listeners: ${freeListeners} }, plugins: { 'client-queue': ${JSON.stringify({ routes })} } }`;
const inbox = '/store/localhost/postmaster/folders/INBOX';
const intervalMs = 10_000;

describe('a list that is open while new rows come', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;
  let letters = 0;

  const queue = async (count: number) => {
    const envelopes = Array.from({ length: count }, () => ({
      mail: 'ann@one.example',
      rcpt: ['bob@one.example'],
      subject: `Out ${(letters += 1)}`,
      text: 'x',
    }));
    await server.admin.json('/client/queue', { json: { envelopes } }, 202);
  };
  const receive = () =>
    deliver(server.portOf('mx'), lines('From: anna@example.org', `Subject: In ${(letters += 1)}`, '', 'x'));

  before(async () => {
    server = await startInProcess(suite, config);
    await server.admin.json('/client/destinations/route:one', { method: 'PUT', json: { suspendFor: 3600 } });
    await queue(60);
    await receive();
    await receive();
    browser = await launchBrowser(suite);
  });

  /** A page whose timers run when the test says so. */
  async function open(path: string, width = 1280) {
    const visited = await visit(browser, server.base, { width });
    await visited.context.clock.install();
    await visited.page.goto(path);
    return visited;
  }

  const news = (page: Page) => page.getByRole('link', { name: /new · show$/ });

  for (const [path, row, cause, added] of [
    ['/client/queue/list', '#entry-list tbody tr', () => queue(3), /^3 new · show$/],
    [inbox, '.messages > li', receive, /^1 new · show$/],
    ['/trace?address=postmaster@localhost', 'main tbody tr', receive, /^1 new · show$/],
    ['/audit', '#entries tbody tr', () => queue(1), /^1 new · show$/],
    ['/logs?q=/client/queue', '#lines > li', () => queue(1), /^\d+ new · show$/],
  ] as const) {
    test(`${path} says how many there are, and shows them when it is asked to`, async () => {
      const { context, page, misdeeds } = await open(path);
      const before = await page.locator(row).allInnerTexts();
      await cause();
      await page.clock.fastForward(intervalMs);
      await news(page).waitFor();
      assert.match(await news(page).innerText(), added);
      assert.deepEqual(await page.locator(row).allInnerTexts(), before, 'nothing has moved');
      assert.deepEqual(await accessibilityFaults(page, 'everything'), []);
      await news(page).click();
      await news(page).waitFor({ state: 'hidden' });
      assert.notDeepEqual(await page.locator(row).allInnerTexts(), before);
      if (path === inbox) assert.match(await page.locator('#folder-count').innerText(), /^3 messages, 3 unread/);
      await page.clock.fastForward(intervalMs);
      assert.equal(await news(page).count(), 0);
      assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
      await context.close();
    });
  }

  test('ticks, the scroll position and the focus stay when the new rows are shown', async () => {
    const { context, page } = await open('/client/queue/list');
    const boxes = page.locator('#entry-list tbody input[type=checkbox]');
    const ticked = [await boxes.nth(3).inputValue(), await boxes.nth(5).inputValue()];
    for (const index of [3, 5]) await boxes.nth(index).check();
    await page.evaluate('window.scrollTo(0, 400)');
    await queue(2);
    await page.clock.fastForward(intervalMs);
    await news(page).waitFor();
    const link = page.locator('#entry-list tbody tr').nth(7).locator('a').first();
    const target = await link.getAttribute('href');
    await link.focus();
    const top = await page.evaluate('window.scrollY');
    await page.evaluate(`htmx.trigger(document.querySelector('.news a'), 'click')`);
    await news(page).waitFor({ state: 'hidden' });
    await page.getByText('2 ticked').waitFor();
    assert.deepEqual(
      await page
        .locator('#entry-list tbody input:checked')
        .evaluateAll((all) => all.map((one) => (one as unknown as { value: string }).value)),
      ticked,
    );
    assert.equal(await page.evaluate('window.scrollY'), top);
    assert.equal(await page.evaluate('document.activeElement.getAttribute("href")'), target);

    await queue(1);
    await page.clock.fastForward(intervalMs);
    await news(page).focus();
    await page.keyboard.press('Enter');
    await news(page).waitFor({ state: 'hidden' });
    assert.ok(await page.evaluate(`document.querySelector('#list').contains(document.activeElement)`));
    await context.close();
  });

  test('a star flags a message and takes the flag away, and the list stays where it is', async () => {
    const { context, page, misdeeds } = await open(inbox);
    const star = page.locator('.message-flag').nth(1);
    const box = page.locator('.messages input[type=checkbox]').first();
    await box.check();
    assert.equal(await star.getAttribute('aria-pressed'), 'false');
    await star.focus();
    await page.keyboard.press('Enter');
    await page.getByText('1 message flagged.').waitFor();
    assert.equal(await star.getAttribute('aria-pressed'), 'true');
    assert.ok(await box.isChecked());
    assert.equal(await page.evaluate('document.activeElement.id'), await star.getAttribute('id'));
    assert.deepEqual(await accessibilityFaults(page, 'everything'), []);

    await page.locator('.messages a').nth(1).click();
    await page.waitForURL(/\/messages\//);
    await page.keyboard.press('[');
    await page.locator('a[rel=prev]').waitFor({ state: 'detached' });
    await page.waitForLoadState();
    await page.keyboard.press(']');
    const pressed = page.getByRole('button', { name: 'Flagged' });
    await page.locator('[aria-pressed=true]').waitFor();
    assert.deepEqual(await accessibilityFaults(page, 'everything'), []);
    await pressed.click();
    await page.getByText('1 message unflagged.').waitFor();
    assert.equal(await pressed.getAttribute('aria-pressed'), 'false');
    assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
    await context.close();
  });

  test('it asks again after a restart of the server, and never again without an account', async () => {
    const { context, page } = await open(inbox);
    let asked = 0;
    let answer: 'lost' | 'refused' | undefined = 'lost';
    await page.route(/since=/, async (route) => {
      asked += 1;
      if (answer === 'lost') await route.abort();
      else if (answer === 'refused') await route.fulfill({ status: 401 });
      else await route.continue();
    });
    const next = async (afterMs: number) => {
      const request = page.waitForRequest(/since=/);
      await page.clock.fastForward(afterMs);
      await request;
      await page.evaluate('Promise.resolve()');
    };
    await receive();
    await next(intervalMs);
    await page.clock.fastForward(intervalMs);
    assert.equal(asked, 1, 'less often while there is no answer');
    answer = undefined;
    await next(intervalMs);
    await news(page).waitFor();
    answer = 'refused';
    await next(intervalMs);
    await page.clock.fastForward(100 * intervalMs);
    assert.equal(asked, 3);
    await context.close();
  });
});
