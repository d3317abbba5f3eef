import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drive } from 'postern/testing';
import { examplePlugin } from './index.js';

test('a sender on the list is refused, everybody else is not', async (t) => {
  const site = await drive(examplePlugin, { test: t, options: { refuse: ['spam@example.com'] } });
  const spam = await site.mailFrom({ from: 'spam@example.com' });
  assert.deepEqual([spam.code, spam.status, spam.plugin], [550, '5.7.1', 'example-plugin']);
  assert.equal((await site.mailFrom({ from: 'anna@example.com' })).verdict, 'accept');
  assert.equal(await site.metric('example_plugin_senders_total', { verdict: 'refused' }), 1);
});

test('the page and its JSON twin show the newest senders', async (t) => {
  const site = await drive(examplePlugin, { test: t, options: { remember: 1 } });
  await site.mailFrom({ from: 'first@example.com' });
  await site.mailFrom({ from: 'second@example.com' });
  const { status, body } = await site.call('GET', '/example-plugin');
  assert.equal(status, 200);
  const at = new Date(site.clock.now()).toISOString();
  assert.deepEqual(body, { senders: [{ at, sender: 'second@example.com', verdict: 'passed' }] });
  assert.match((await site.page('/example-plugin')).text, /second@example\.com passed/);
});

test('nobody may look without having signed in', async (t) => {
  const site = await drive(examplePlugin, { test: t });
  assert.equal((await site.call('GET', '/example-plugin', { role: null })).status, 401);
});

test('it is up', async (t) => {
  const site = await drive(examplePlugin, { test: t });
  assert.equal(site.health('example-plugin').status, 'up');
});
