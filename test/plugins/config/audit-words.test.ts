import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { auditPath } from '../../../core/log/file.js';
import type { AuditEntry } from '../../../core/contracts/http-records.js';
import { auditWords } from '../../../plugins/config/audit-words.js';
import { config } from '../../../plugins/config/index.js';
import { configurationOf, openPluginSite } from '../plugin-site.js';

const entry = (more: Partial<AuditEntry>): AuditEntry => ({
  at: '2026-11-21T11:00:00.000Z',
  by: 'anna',
  from: '192.0.2.1',
  requestId: 'request-1',
  method: 'POST',
  route: '/things',
  params: {},
  status: 200,
  ...more,
});

/** Links in brackets, with their targets. */
const told = (more: Partial<AuditEntry>): string =>
  auditWords(entry(more))
    .map(({ text, href }) => (href === undefined ? text : `[${text}](${href})`))
    .join('');

test('an entry is told as a sentence with links to what was changed', () => {
  const mailbox = { domain: 'example.org', user: 'anna' };
  assert.equal(
    told({ action: 'change user', selector: { username: 'a+b@example.org', fields: ['aliases', 'quota'] } }),
    'changed aliases, quota of the user [a+b@example.org](/users/a%2Bb%40example.org)',
  );
  assert.equal(
    told({
      action: 'messages.move',
      params: mailbox,
      selector: { from: 'INBOX', to: 'Old mail' },
      counts: { moved: 1 },
    }),
    'moved 1 message from [INBOX](/store/example.org/anna/folders/INBOX) to [Old mail](/store/example.org/anna/folders/Old%20mail) of [anna@example.org](/store/example.org/anna)',
  );
  assert.equal(
    told({ action: 'queue.bounce', selector: { filter: 'state=deferred&domain=example.net' } }),
    'bounced [queued messages with state deferred, domain example.net](/client/queue/list?state=deferred&domain=example.net)',
  );
  assert.equal(
    told({ action: 'queue.retry', selector: { uids: ['u1', 'u2', 'u3', 'u4', 'and 5 more'] } }),
    'retried the queued messages [u1](/client/queue/u1), [u2](/client/queue/u2), [u3](/client/queue/u3) and 2 more',
  );
  assert.equal(
    told({ action: 'destination.clear', selector: { destination: 'example.net' } }),
    'reset the limits of [example.net](/client/destinations/example.net)',
  );
  assert.equal(
    told({ action: 'config.reload', selector: { changed: ['hostname'] } }),
    'reloaded the [configuration](/config), which changed hostname',
  );
  assert.equal(
    told({ action: 'use configuration', selector: { set: 7 } }),
    'put [set 7](/cluster/configuration/7) of the configuration to use',
  );
});

test('an entry of a plugin that nobody knows is told by its action and address; nothing in it breaks the page', () => {
  assert.equal(
    told({ action: 'greylist.clear', route: '/grey/{name}', params: { name: 'x' } }),
    'greylist.clear: /grey/x',
  );
  assert.equal(told({ route: '/grey' }), 'called POST /grey');
  for (const selector of [null, 7, [], ['a'], 'text', { filter: 7, uids: { a: 1 } }]) {
    for (const action of ['add user', 'queue.hold', 'messages.move', 'toString', '__proto__'])
      told({ action, selector });
  }
});

test('the page shows what was carried out, unless it is asked for what was refused', async (t) => {
  const site = await openPluginSite(t, config, { configuration: configurationOf([]) });
  await mkdir(join(site.data, 'logs'), { recursive: true });
  const lines = [
    entry({ action: 'add user', selector: { username: 'new@example.org' } }),
    entry({ action: 'remove user', selector: { username: 'old@example.org' }, status: 403 }),
  ];
  await writeFile(auditPath(join(site.data, 'logs'), 0), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const page = await site.page('/audit');
  assert.match(page, /added the user <a href="\/users\/new%40example.org">new@example.org<\/a>/);
  assert.doesNotMatch(page, /old@example/);
  assert.equal((await site.json('/audit'))['total'], 1);
  assert.match(await site.page('/audit?result=refused'), /refused, 403/);
  assert.equal((await site.json('/audit?result=all'))['total'], 2);
});

test('the page of sign-ins shows and filters them, for admins', async (t) => {
  const site = await openPluginSite(t, config, { configuration: configurationOf([]) });
  assert.match(await site.page('/sign-ins'), /No sign-in yet/);
  site.signIns.record({ username: 'anna@example.org', address: '192.0.2.1', protocol: 'smtp', result: 'accepted' });
  site.signIns.record({ username: '<b>', address: '192.0.2.9', protocol: 'basic', result: 'refused' });
  const page = await site.page('/sign-ins');
  assert.match(page, /anna@example\.org/);
  assert.match(page, /&lt;b&gt;/);
  const { items } = (await site.json('/sign-ins?result=refused&address=192.0.2.')) as { items: { username: string }[] };
  assert.deepEqual(
    items.map(({ username }) => username),
    ['<b>'],
  );
  assert.equal((await site.get('/sign-ins', { as: 'operator' })).status, 403);
  assert.equal((await site.get('/sign-ins?result=x')).status, 400);
  assert.equal((await site.get('/sign-ins?cursor=x')).status, 400);
});
