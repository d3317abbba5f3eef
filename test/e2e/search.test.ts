import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { adminPassword as password } from '../support/server-process.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { until } from '../support/until.js';

const suite = suiteEnding();

interface Found {
  readonly mail: {
    readonly items: readonly { readonly mailbox: string; readonly subject: string; readonly href: string }[];
    readonly total: number;
    readonly mailboxes: number;
    readonly searched: number;
  } | null;
  readonly groups: readonly {
    readonly name: string;
    readonly items: readonly { readonly title: string; readonly href: string; readonly states: readonly string[] }[];
    readonly total: number | null;
    readonly more: string | null;
  }[];
}

const roles = ['read', 'operate', 'admin'] as const;

describe('a search from the header', () => {
  let server: InProcessServer;
  const clients = new Map<string, HttpClient>();

  before(async () => {
    const plugins = { 'client-queue': { routes: { nowhere: { mx: ['127.0.0.1'], port: await freePort() } } } };
    const http = {
      accounts: roles.map((role) => ({ username: role, password, role })),
      access: [
        { match: '/store/localhost/boss/*', role: 'admin' },
        { match: '/store/localhost/own/*', username: 'else', password },
      ],
    };
    server = await startInProcess(
      suite,
      JSON.stringify({ smtp: { listeners: [{ name: 'mx', port: 0 }] }, http, plugins }),
    );
    for (const role of roles) clients.set(role, new HttpClient(server.base, { username: role, password }));
    const admin = client('admin');
    for (const user of ['ann', 'boss', 'own'])
      await admin.json('/users', { json: { username: `${user}@localhost` } }, 201);
    for (const user of ['postmaster', 'ann', 'boss', 'own']) {
      const message = lines('From: Eve <eve@sender.example>', `Subject: Zebra for <b>${user}</b>`, '', 'hello');
      await deliver(server.portOf('mx'), message, `${user}@localhost`);
    }
  });

  const client = (role: string): HttpClient => clients.get(role) ?? server.admin;
  /** Until everything was searched. */
  const search = (text: string, role = 'admin', more = ''): Promise<Found> =>
    client(role).json(`/search?wait=10&q=${encodeURIComponent(text)}${more}`) as Promise<Found>;
  const group = async (name: string, text: string, role = 'admin') =>
    (await search(text, role)).groups.find((one) => one.name === name);

  test('finds subject words in all mailboxes, newest first, and leads to the messages', async () => {
    const { mail } = await search('zebra FOR');
    assert.deepEqual(
      mail?.items.map(({ mailbox }) => mailbox),
      ['boss@localhost', 'ann@localhost', 'postmaster@localhost'],
    );
    assert.deepEqual([mail?.total, mail?.mailboxes, mail?.searched], [3, 3, 3]);
    const { status } = await client('admin').request(mail?.items[0]?.href ?? '', { accept: 'text/html' });
    assert.equal(status, 200);
    const page = await client('admin').page('/search?wait=10&q=zebra');
    assert.match(page, /<mark>Zebra<\/mark> for &lt;b&gt;boss&lt;\/b&gt;/);
    assert.match(page, /3 of 3 mailboxes searched/);
    assert.doesNotMatch(page, /hx-trigger="load/);
  });

  test('shows mail only to those who may open it, by the access rules in force', async () => {
    assert.equal((await search('zebra', 'read')).mail, null);
    const { mail } = await search('zebra', 'operate');
    assert.deepEqual(mail?.items.map(({ mailbox }) => mailbox).toSorted(), ['ann@localhost', 'postmaster@localhost']);
    assert.deepEqual([mail.total, mail.mailboxes], [2, 2]);
    for (const role of roles) {
      const { groups } = await search('postmaster', role);
      const expected = { read: ['queue', 'users', 'pages'], operate: ['traces', 'queue', 'users', 'pages'] };
      const all = ['traces', 'queue', 'users', 'settings', 'pages'];
      assert.deepEqual(
        groups.map(({ name }) => name),
        role === 'admin' ? all : expected[role],
      );
      const page = await client(role).page('/search?wait=10&q=zebra');
      assert.equal(page.includes('ann@localhost'), role !== 'read');
      assert.equal(page.includes('boss@localhost'), role === 'admin');
      assert.doesNotMatch(page, /own@localhost/);
      for (const { items } of groups) {
        for (const { href } of items) {
          assert.equal((await client(role).request(href, { accept: 'text/html' })).status, 200, `${role}: ${href}`);
        }
      }
    }
    assert.equal((await new HttpClient(server.base).request('/search?q=zebra')).status, 401);
  });

  test('finds users, settings and pages by their words', async () => {
    const users = await group('users', 'ann@localhost');
    assert.deepEqual(
      users?.items.map(({ title, href }) => [title, href]),
      [['ann@localhost', '/users/ann%40localhost']],
    );
    const [byRead] = (await group('users', 'ANN@', 'read'))?.items ?? [];
    assert.equal(byRead?.href, '/users?q=ann%40localhost');
    assert.ok((await group('settings', 'hostname'))?.items.some(({ title }) => title === 'hostname'));
    assert.ok((await group('pages', 'health every'))?.items.some(({ href }) => href === '/health/extended'));
    const secrets = await group('settings', password);
    assert.deepEqual(secrets?.items, [], 'a secret is not searched');
  });

  test('finds queued mail and its traces by sender, subject and recipient', async () => {
    const envelopes = [{ mail: 'ann@localhost', rcpt: ['bert@elsewhere.example'], subject: 'Quagga', text: 'y' }];
    const json = { route: 'nowhere', envelopes };
    const { uid } = (await client('admin').json('/client/queue', { json }, 202)) as { uid: string };
    const queue = await group('queue', 'quagga');
    assert.deepEqual(
      queue?.items.map(({ title, href }) => [title, href]),
      [['Quagga', `/client/queue/${uid}`]],
    );
    assert.equal(queue.total, 1);
    const traces = await until('a trace', async () => {
      const found = await group('traces', 'bert@elsewhere.example');
      return found?.items.length === 0 ? undefined : found;
    });
    assert.match(traces.items[0]?.href ?? '', /^\/trace\/[0-9a-z]{20}$/);
    assert.match(traces.items[0]?.title ?? '', /^ann@localhost → bert@elsewhere.example$/);
  });

  test('takes one group, a limit, and refuses what is out of bounds', async () => {
    const mail = await search('zebra', 'admin', '&group=mail&limit=1');
    assert.deepEqual([mail.mail?.items.length, mail.mail?.total, mail.groups], [1, 3, []]);
    const pages = await search('zebra', 'admin', '&group=pages');
    assert.deepEqual([pages.mail, pages.groups.map(({ name }) => name)], [null, ['pages']]);
    for (const query of [
      `q=${'x'.repeat(999)}`,
      'q=%00',
      'q=x&limit=101',
      'q=x&wait=11',
      'q=x&group=else',
      'q=x&poll=-1',
      'q=x&y=1',
    ]) {
      assert.equal((await client('admin').request(`/search?${query}`)).status, 400, query.slice(0, 20));
    }
    for (const text of ['../..', '"', '%', 'a\nb', '<script>']) {
      const { status } = await client('admin').request(`/search?q=${encodeURIComponent(text)}`);
      assert.equal(status, 200, JSON.stringify(text));
    }
  });

  test('says what was searched when there is nothing, and what can be searched without words', async () => {
    const page = await client('operate').page('/search?wait=10&q=qwertzuiop');
    assert.match(page, /No results/);
    assert.match(page, /Searched: Mail, Traces, Queue, Users, Pages\./);
    assert.match(await client('read').page('/search?q=+'), /uid of a queue entry/);
  });

  test('a page whose time was up continues by htmx, and by a link without JavaScript', async () => {
    const page = await client('admin').page('/search?wait=0&q=zebra');
    assert.match(page, /0 of 3 mailboxes searched\. The others are being read\./);
    assert.match(page, /hx-get="\/search\?q=zebra&amp;group=mail&amp;limit=10&amp;wait=2&amp;poll=1"/);
    assert.match(page, /<a href="\/search\?q=zebra&amp;limit=10&amp;wait=10">Search the rest<\/a>/);
    const last = await client('admin').page('/search?wait=0&q=zebra&group=mail&poll=60');
    assert.doesNotMatch(last, /hx-get="\/search/, 'it does not ask for ever');
  });
});
