import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { adminPassword } from '../support/server-process.js';
import { launchBrowser, visit } from './browser.js';

const suite = suiteEnding();

const message = lines(
  'From: Anna Example <anna@example.org>',
  'To: postmaster@localhost',
  'Subject: About the bridge',
  'Message-ID: <bridge@example.org>',
  'MIME-Version: 1.0',
  'Content-Type: multipart/alternative; boundary=b',
  '',
  '--b',
  'Content-Type: text/plain; charset=utf-8',
  '',
  'It creaks.',
  '--b',
  'Content-Type: text/html; charset=utf-8',
  '',
  '<p>It <em>creaks</em> loudly.</p>',
  '--b--',
);

describe('an operator walks to a message', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;

  before(async () => {
    server = await startInProcess(suite);
    await deliver(server.portOf('mx'), message);
    browser = await launchBrowser(suite);
  });

  for (const javaScriptEnabled of [true, false]) {
    test(`from the landing page to each view of it, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      const { context, page, misdeeds } = await visit(browser, server.base, { javaScriptEnabled });
      const main = page.getByRole('main');
      await page.goto('/');
      await page
        .getByRole('navigation', { name: 'Main', exact: true })
        .getByRole('link', { name: 'Mailboxes' })
        .click();
      await main.getByRole('link', { name: 'localhost', exact: true }).click();
      await main.getByRole('link', { name: /^postmaster/ }).click();
      await main
        .getByRole('link', { name: /^INBOX/ })
        .first()
        .click();
      await main.getByRole('link', { name: 'About the bridge' }).first().click();
      assert.match(await page.title(), /^About the bridge/);

      const views = page.getByRole('navigation', { name: 'Views of the message' });
      await views.getByRole('link', { name: 'Text' }).click();
      await main.getByText('It creaks.').waitFor();
      await views.getByRole('link', { name: 'HTML' }).click();
      await page.frameLocator('iframe').getByText('loudly').waitFor();
      await views.getByRole('link', { name: 'Headers' }).click();
      await main.getByText('Message-ID').first().waitFor();
      await views.getByRole('link', { name: 'Structure' }).click();
      await main.getByText('multipart/alternative').first().waitFor();
      await views.getByRole('link', { name: 'Raw' }).click();
      await main.getByText('--b--').waitFor();
      assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
      await context.close();
    });

    test(`and finds it by a word, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      const { context, page } = await visit(browser, server.base, { javaScriptEnabled });
      await page.goto('/store/localhost/postmaster/folders/INBOX');
      const words = page.getByRole('main').getByRole('searchbox');
      await words.fill('bridge');
      await words.press('Enter');
      await page.getByRole('link', { name: 'About the bridge' }).first().waitFor();
      await words.fill('tunnel');
      await words.press('Enter');
      await page.getByRole('link', { name: 'About the bridge' }).first().waitFor({ state: 'detached' });
      await context.close();
    });
  }

  for (const javaScriptEnabled of [true, false]) {
    test(`a stranger signs in, goes where they wanted to, and signs out, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      const context = await browser.newContext({ baseURL: server.base, javaScriptEnabled });
      const page = await context.newPage();
      await page.goto('/store/localhost');
      assert.equal(new URL(page.url()).pathname, '/sign-in');
      assert.doesNotMatch(await page.content(), /postmaster/);
      await page.getByLabel('User name').fill('admin');
      await page.getByLabel('Password').fill('not the password');
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('Wrong user name or password.').first().waitFor();
      assert.equal(await page.getByLabel('User name').inputValue(), 'admin');
      await page.getByLabel('Password').fill(adminPassword);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('link', { name: 'postmaster' }).first().waitFor();
      assert.equal(new URL(page.url()).pathname, '/store/localhost');
      await page.goto('/sessions');
      await page.getByText('this one').waitFor();
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      await page.goto('/store');
      assert.equal(new URL(page.url()).pathname, '/sign-in');
      await context.close();
    });
  }
});
