import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { until } from '../support/until.js';
import { accessibilityFaults, launchBrowser, overflow, visit } from './browser.js';

const suite = suiteEnding();
const mailbox = '/store/localhost/postmaster';
const letter = lines(
  'From: Anna Example <anna@example.org>',
  'To: postmaster@localhost, Bob <bob@example.net>',
  'Subject: About the bridge',
  'Date: Sat, 21 Nov 2026 01:02:03 +0000',
  'Message-ID: <bridge@example.org>',
  '',
  'It creaks.',
);
const file = (name: string, bytes: number) => ({
  name,
  mimeType: 'application/octet-stream',
  buffer: Buffer.alloc(bytes, 7),
});

describe('somebody who writes in a browser', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;

  before(async () => {
    server = await startInProcess(suite);
    await deliver(server.portOf('mx'), letter);
    browser = await launchBrowser(suite);
  });

  const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();

  for (const javaScriptEnabled of [true, false]) {
    const how = javaScriptEnabled ? 'with' : 'without';

    test(`answers a message, attaches files and sends, ${how} JavaScript`, async () => {
      const { context, page, misdeeds } = await visit(browser, server.base, { javaScriptEnabled });
      await page.goto(`${mailbox}/folders/INBOX?q=bridge`);
      await page
        .getByRole('link', { name: /^Anna Example About|About the bridge/ })
        .last()
        .click();
      await press(page, 'Reply all');
      assert.equal(await page.getByLabel('To', { exact: true }).inputValue(), 'Anna Example <anna@example.org>');
      assert.equal(await page.getByLabel('Cc', { exact: true }).inputValue(), 'Bob <bob@example.net>');
      assert.match(await page.getByLabel('Text').inputValue(), /^\n\nOn .* wrote:\n> It creaks\.\n$/);

      await page.getByLabel('To', { exact: true }).fill('postmaster@localhost');
      await page.getByLabel('Cc', { exact: true }).fill('');
      await page.getByLabel('Subject').fill(`mended ${how}`);
      await page.getByLabel('Files to attach').setInputFiles([file('a.bin', 3_000_000), file('b.bin', 10)]);
      await press(page, 'Attach');
      await page.getByText('2 files are attached.').waitFor();
      assert.equal(await page.getByLabel('Subject').inputValue(), `mended ${how}`);
      await press(page, 'Remove a.bin');
      await page.getByText('The attachment is removed.').waitFor();
      await page.getByLabel('Text').fill('It creaks no more.');
      await press(page, 'Save');
      await page.getByText('Saved.').waitFor();
      await press(page, 'Send');
      await page.getByText('Sent.').waitFor();
      assert.match(page.url(), /\/folders\/Sent\/messages\//);
      await page.getByRole('link', { name: 'b.bin' }).waitFor();
      assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
      await context.close();
    });

    test(`sees both versions after a concurrent change, ${how} JavaScript`, async () => {
      const { context, page: first } = await visit(browser, server.base, { javaScriptEnabled });
      await first.goto(`${mailbox}/drafts`);
      await press(first, 'New draft');
      const second = await context.newPage();
      await second.goto(first.url().replace(/\?.*/, ''));
      await first.getByLabel('Subject').fill('of the first');
      await press(first, 'Save');
      await first.getByText('Saved.').waitFor();

      await second.getByLabel('Subject').fill('of the second');
      await second.getByLabel('Text').fill('\ntwo\n\nlines');
      // The way that has a script of its own.
      await second.getByLabel('Files to attach').setInputFiles(file('late.bin', 10));
      await press(second, 'Attach');
      await second.getByRole('heading', { name: 'Changed by someone else' }).waitFor();
      await second.getByText('of the first').waitFor();
      assert.deepEqual(javaScriptEnabled ? await accessibilityFaults(second, 'everything') : [], []);
      await second.setViewportSize({ width: 320, height: 800 });
      assert.equal(await overflow(second), 0);
      await press(second, 'Save mine over theirs');
      await second.getByText('Saved.').waitFor();
      assert.equal(await second.getByLabel('Subject').inputValue(), 'of the second');
      assert.equal(await second.getByLabel('Text').inputValue(), '\ntwo\n\nlines');
      await context.close();
    });

    test(`finds what was refused in the editor, ${how} JavaScript`, async () => {
      const { context, page } = await visit(browser, server.base, { javaScriptEnabled });
      await page.goto(`${mailbox}/drafts`);
      await press(page, 'New draft');
      await page.getByLabel('To', { exact: true }).fill('no address');
      await page.getByLabel('Text').fill('hours of work');
      await press(page, 'Send');
      await page.getByText('Nothing was saved yet.').waitFor();
      assert.equal(await page.getByLabel('Text').inputValue(), 'hours of work');
      assert.equal(await page.getByLabel('To', { exact: true }).getAttribute('aria-invalid'), 'true');
      assert.deepEqual(javaScriptEnabled ? await accessibilityFaults(page, 'everything') : [], []);

      await page.getByLabel('To', { exact: true }).fill('postmaster@localhost');
      await page.getByLabel('Files to attach').setInputFiles(file('forgotten.bin', 10));
      await press(page, 'Send');
      await page.getByText('You have chosen a file that is not attached yet').waitFor();
      assert.equal(await page.getByLabel('Text').inputValue(), 'hours of work');
      await context.close();
    });
  }

  test('finds a draft saved that was only written, and learns why one is not', async () => {
    const { context, page, misdeeds } = await visit(browser, server.base);
    await context.clock.install();
    await page.goto(`${mailbox}/drafts`);
    await press(page, 'New draft');
    const path = new URL(page.url()).pathname;
    const saved = async () => (await server.admin.json(path)) as { readonly subject: string; readonly text: string };
    const line = page.locator('form [data-save-status]');
    const after = (name: string, text: string) => page.getByLabel(name, { exact: true }).fill(text);

    await after('Subject', 'Begun');
    await after('Text', 'One line');
    await page.clock.fastForward(3000);
    await line.getByText(/^Saved \d\d:\d\d UTC$/).waitFor();
    assert.deepEqual([(await saved()).subject, (await saved()).text], ['Begun', 'One line']);
    await after('Subject', 'Begun again');
    await page.clock.fastForward(3000);
    // The version of the first time is that of the second.
    await until('the second time', async () => ((await saved()).subject === 'Begun again' ? true : undefined));

    await after('To', 'no address');
    await page.clock.fastForward(3000);
    await line.getByText(/^Not saved: To: /).waitFor();
    misdeeds.complaints.length = 0;
    await after('To', 'postmaster@localhost');
    await page.clock.fastForward(3000);
    await line.getByText(/^Saved/).waitFor();
    assert.deepEqual(await accessibilityFaults(page, 'everything'), []);

    await after('Text', 'Two lines');
    await page.clock.fastForward(3000);
    // Pressed while the text is being saved.
    await press(page, 'Send');
    await page.getByText('Sent.').waitFor();
    assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
    await context.close();
  });

  test('keeps the HTML of a draft whose text is not changed', async () => {
    const fields = { to: ['postmaster@localhost'], subject: 'x', text: 'plain', html: '<p>plain</p>' };
    const { draftId } = (await server.admin.json(`${mailbox}/drafts`, { json: fields }, 201)) as { draftId: string };
    const { context, page } = await visit(browser, server.base);
    await context.clock.install();
    await page.goto(`${mailbox}/drafts/${draftId}`);
    await page.getByLabel('Subject').fill('y');
    await page.clock.fastForward(3000);
    await page
      .locator('form')
      .getByText(/^Saved/)
      .waitFor();
    const { subject, html } = (await server.admin.json(`${mailbox}/drafts/${draftId}`)) as typeof fields;
    assert.deepEqual([subject, html?.trim()], ['y', '<p>plain</p>']);
    await context.close();
  });

  test('does not overwrite what another tab has saved, and is warned before what is not saved is lost', async () => {
    const { context, page: first, misdeeds } = await visit(browser, server.base);
    await first.goto(`${mailbox}/drafts`);
    await press(first, 'New draft');
    const path = new URL(first.url()).pathname;
    const second = await context.newPage();
    await second.clock.install();
    await second.goto(path);
    await first.getByLabel('Subject').fill('of the first');
    await press(first, 'Save');
    await first.getByText('Saved.').waitFor();
    await second.getByLabel('Subject').fill('of the second');
    await second.clock.fastForward(3000);
    await second
      .getByText(/^Not saved: it was changed elsewhere/)
      .last()
      .waitFor();
    assert.equal(((await server.admin.json(path)) as { subject: string }).subject, 'of the first');
    await second.getByRole('link', { name: 'Users' }).click();
    await until('the warning', () => Promise.resolve(misdeeds.escapes.length > 0 ? true : undefined));
    assert.equal(new URL(second.url()).pathname, path, 'the warning was dismissed');
    await press(second, 'Save');
    await second.getByRole('heading', { name: 'Changed by someone else' }).waitFor();
    await context.close();
  });

  test('sees the list while typing, and can still choose from it', async () => {
    const { context, page, misdeeds } = await visit(browser, server.base);
    await deliver(server.portOf('mx'), lines('Subject: Another matter', '', 'x'));
    await page.goto(`${mailbox}/folders/INBOX`);
    await page.getByRole('link', { name: /Another matter/ }).waitFor();
    await page.getByRole('main').getByRole('searchbox').pressSequentially('bridge');
    // A list for the first letters may come before.
    await page.waitForURL(/q=bridge/);
    await page.getByRole('link', { name: /Another matter/ }).waitFor({ state: 'detached' });
    await page.getByText(/messages? fits?$/).waitFor();
    assert.match(await page.title(), /^INBOX/);
    await page.getByRole('checkbox', { name: 'All on this page' }).check();
    await page.getByText(/^\d+ ticked$/).waitFor();
    await press(page, 'Mark read');
    await page.getByText(/marked read\./).waitFor();
    assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
    await context.close();
  });
});
