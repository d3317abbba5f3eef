import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { deliver } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { listMessages } from '../support/mailbox-reader.js';
import { skipWithout } from '../support/peers.js';
import { launchBrowser, visit } from './browser.js';
import { hostileMessage, tracker } from './hostile-message.js';

const suite = suiteEnding();
const folder = '/store/localhost/postmaster/folders/INBOX';

describe('a message that wants to act', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;
  let path: string;

  before(async () => {
    server = await startInProcess(suite);
    await deliver(server.portOf('mx'), hostileMessage);
    const [message] = await listMessages(server.admin);
    path = `${folder}/messages/${encodeURIComponent(message?.id ?? '')}`;
    browser = await launchBrowser(suite);
  });

  /** Opens it and everything in it, as far as it would load. */
  async function open(page: Page, target: string): Promise<void> {
    await page.goto(target);
    const frame = page.locator('iframe');
    if ((await frame.count()) === 0) return;
    await frame.first().scrollIntoViewIfNeeded();
    await page.frameLocator('iframe').first().getByText('Good day').waitFor();
  }

  for (const view of ['', '?view=text', '?view=html', '?view=headers', '?view=structure', '?view=raw', '/html']) {
    test(`neither runs nor fetches anything at ${view === '' ? 'its page' : view}`, async () => {
      const { context, page, misdeeds } = await visit(browser, server.base);
      await open(page, `${path}${view}`);
      assert.equal(page.url(), `${server.base}${path}${view}`, 'the page has not been left');
      assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
      await context.close();
    });
  }

  test('neither runs nor fetches anything in the list', async () => {
    const { context, page, misdeeds } = await visit(browser, server.base);
    await page.goto(folder);
    await page.getByText('<script>alert("subject")</script>').first().waitFor();
    assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
    await context.close();
  });

  test('runs nothing when its parts are opened', async () => {
    const { parts } = (await server.admin.json(path)) as { parts: readonly { part: string; contentType: string }[] };
    const { context, page, misdeeds } = await visit(browser, server.base);
    const active = parts.filter(({ contentType }) => /html|svg/.test(contentType));
    assert.equal(active.length, 3);
    for (const { part } of active) {
      const url = `${path}/parts/${part}`;
      const { headers } = await server.admin.request(url);
      assert.equal(headers.get('x-content-type-options'), 'nosniff', part);
      // A part that is sent as an attachment is saved: then there is no page to go to.
      await page.goto(url).catch(() => undefined);
    }
    assert.deepEqual(misdeeds.escapes, []);
    await context.close();
  });

  test('shows its own picture, and nothing that hides the rest or asks for input', async () => {
    const { context, page } = await visit(browser, server.base);
    await open(page, `${path}/html`);
    const shown = await page.evaluate<{ width: number; forbidden: number; covering: number }>(`({
      width: document.querySelector('img[alt="inline picture"]')?.naturalWidth ?? 0,
      forbidden: document.querySelectorAll('script, form, input, button, iframe, object, embed, video, svg, base, link').length,
      covering: [...document.querySelectorAll('*')].filter((element) => getComputedStyle(element).position === 'fixed').length,
    })`);
    assert.deepEqual(shown, { width: 1, forbidden: 0, covering: 0 });
    await context.close();
  });

  test('fetches pictures, and only pictures, when remote content is requested', async () => {
    const { context, page, misdeeds } = await visit(browser, server.base);
    await open(page, `${path}?view=html&remote=1`);
    assert.ok(misdeeds.escapes.includes(`${tracker}/pixel.gif`), misdeeds.escapes.join(' '));
    const others = misdeeds.escapes.filter(
      (url) => !/\/(pixel|set|picture|inline|background|body)\.(gif|png)$/.test(url),
    );
    assert.deepEqual(others, []);
    await context.close();
  });
});
