import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { freeListeners } from '../support/server-process.js';
import { accessibilityFaults, launchBrowser, overflow, visit } from './browser.js';

const suite = suiteEnding();
const config = `{ sitePlugins: ['./notes'], smtp: { listeners: ${freeListeners} } }`;

/** Two forms that htmx sends: one endpoint says itself how its page looks again, the other one leaves that to the server. */
const code = `
import { join } from 'node:path';
import { defineEndpoint, definePlugin, problem, respond, z } from 'postern/plugin';

const Note = z.strictObject({ text: z.string(), importance: z.int() });
const group = 'Site';

export const notes = definePlugin({
  name: 'notes',
  views: join(import.meta.dirname, 'views'),
  setup({ http }) {
    const page = { text: '', error: '' };
    const add = { method: 'POST', group, access: 'operate', body: { kind: 'fields', schema: Note }, handle: () => respond({ location: '/notes' }) };
    http.mount([
      defineEndpoint({ method: 'GET', path: '/notes', summary: 'Notes', group, access: 'read', view: 'page.njk', handle: () => page }),
      defineEndpoint({ ...add, path: '/notes/usual', summary: 'Add a note' }),
      defineEndpoint({
        ...add,
        path: '/notes/own',
        summary: 'Add a note, too',
        again: ({ fields, problem: { details } }) =>
          respond({ view: 'page.njk', model: { text: fields.text, error: details.errors[0].message } }),
      }),
    ]);
  },
});
`;

const view = `{% extends layout %}
{% import 'macros/ui.njk' as ui %}
{% set title = 'Notes' %}
{% block content %}
<ul id="list"></ul>
{% for kind in ['usual', 'own'] %}
<form class="form" method="post" action="/notes/{{ kind }}" hx-post="/notes/{{ kind }}" hx-target="#list" hx-select="#list" hx-swap="outerHTML">
{{ ui.field('text', 'Text of ' + kind, {id: 'text-' + kind, value: text}) }}
{{ ui.field('importance', 'Importance of ' + kind, {id: 'importance-' + kind, error: error}) }}
{{ ui.submit('Add ' + kind) }}
</form>
{% endfor %}
{% endblock %}
`;

async function writePlugin(folder: string): Promise<void> {
  await mkdir(join(folder, 'notes', 'views'), { recursive: true });
  await writeFile(join(folder, 'notes', 'package.json'), '{ "type": "module", "main": "index.js" }');
  await writeFile(join(folder, 'notes', 'index.js'), code);
  await writeFile(join(folder, 'notes', 'views', 'page.njk'), view);
}

describe('a refused form in a browser', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;

  before(async () => {
    server = await startInProcess(suite, config, {}, writePlugin);
    browser = await launchBrowser(suite);
  });

  for (const kind of ['usual', 'own']) {
    test(`htmx shows the page again, with the fields in place: ${kind}`, async () => {
      const { context, page } = await visit(browser, server.base);
      await page.goto('/notes');
      await page.fill(`#text-${kind}`, 'what was written');
      await page.fill(`#importance-${kind}`, 'high');
      await page.click(`text=Add ${kind}`);
      await page.waitForSelector(`#content > form #importance-${kind}[aria-invalid="true"]`);
      assert.equal(await page.inputValue(`#text-${kind}`), 'what was written');
      assert.equal(
        await page.textContent(`#importance-${kind}-error`),
        kind === 'own' ? 'must be a number' : 'Must be a number.',
      );
      assert.equal(await page.locator('h1').count(), 1);
      assert.equal(await page.locator('#toasts > *').count(), 0);
      await context.close();
    });
  }

  for (const javaScriptEnabled of [true, false]) {
    test(`a person mends it and goes on, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      const { context, page } = await visit(browser, server.base, {
        javaScriptEnabled,
        width: 320,
        colorScheme: 'dark',
      });
      await page.goto('/users?q=post');
      const name = javaScriptEnabled ? 'anna' : 'berta';
      for (const username of ['a b', 'also wrong']) {
        await page.fill('#field-username', username);
        await page.fill('#field-quota', 'much');
        const answered = javaScriptEnabled ? page.waitForEvent('requestfinished') : page.waitForEvent('load');
        await page.click('text=Add user');
        await answered;
        await page.waitForSelector('#field-quota[aria-invalid="true"]');
        assert.equal(await page.inputValue('#field-username'), username);
        assert.equal(await page.inputValue('#field-q'), 'post');
        assert.equal(await overflow(page), 0);
      }
      if (javaScriptEnabled) {
        assert.equal(await page.evaluate<string>('document.activeElement.id'), 'field-username');
        assert.deepEqual(await accessibilityFaults(page, 'everything'), []);
      }
      await page.fill('#field-username', name);
      await page.fill('#field-quota', '5 MB');
      await page.click('text=Add user');
      assert.equal(await page.textContent('h1'), `${name}@localhost`);
      await context.close();
    });
  }
});
