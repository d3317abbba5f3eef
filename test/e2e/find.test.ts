import assert from 'node:assert/strict';
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { deliver, lines } from '../support/delivery.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';

const suite = suiteEnding();
const messageId = '<what+is"sought;@sender.example>';

interface Landing {
  readonly found: readonly { readonly title: string; readonly href: string }[];
}
interface Logs {
  readonly items: readonly { readonly line: Readonly<Record<string, unknown>> }[];
}

describe('what an operator has in hand', () => {
  let server: InProcessServer;

  before(async () => {
    const accounts = [
      { username: 'admin', password: 'the password of a test', role: 'admin' },
      { username: 'guest', password: 'the password of a guest', role: 'read' },
    ];
    const plugins = { 'client-queue': { routes: { nowhere: { mx: ['127.0.0.1'], port: await freePort() } } } };
    const config = { smtp: { listeners: [{ name: 'mx', port: 0 }] }, http: { accounts }, plugins };
    server = await startInProcess(suite, JSON.stringify(config));
    await deliver(server.portOf('mx'), lines('Subject: x', `Message-ID: ${messageId}`, '', 'hello'));
  });

  const path = (text: string): string => `/?find=${encodeURIComponent(text)}`;
  const found = async (text: string, client = server.admin): Promise<Landing['found']> =>
    ((await client.json(path(text))) as Landing).found;
  const logged = async (query: string): Promise<Logs['items']> =>
    ((await server.admin.json(query)) as Logs).items.filter(({ line }) => line['msg'] !== 'request');

  test('leads from a Message-ID to its trace and to the lines of the log, and from there to its session and transaction', async () => {
    const [trace, log] = await found(messageId);
    const one = await server.admin.request(trace?.href ?? '', { accept: 'text/html' });
    assert.match(one.headers.get('location') ?? '', /^\/trace\/[0-9a-z]{20}$/);
    const items = await logged(`${log?.href ?? ''}&format=json`);
    assert.deepEqual(
      items.map(({ line }) => [line['msg'], line['messageId']]),
      [['accepted', messageId]],
    );
    const { session = '', transaction = '' } = (items[0]?.line ?? {}) as Record<string, string>;
    const page = await server.admin.page(`/logs?q=${transaction}`);
    assert.ok(page.includes(`href="/logs?q=${session}"`), 'the session is a link');
    assert.ok(page.includes(`href="/logs?q=${encodeURIComponent(messageId)}"`), 'the Message-ID is a link');
    const ofSession = await logged(`/logs?q=${session}&format=json`);
    assert.deepEqual(new Set(ofSession.map(({ line }) => line['session'])), new Set([session]));
    assert.ok(ofSession.length >= 2);
  });

  test('shows who has signed in, who could not, and where a message went', async () => {
    const guest = new HttpClient(server.base, { username: 'guest', password: 'the password of a guest' });
    await guest.json('/users');
    await guest.json('/users');
    const stranger = new HttpClient(server.base, { username: `mallory-${'x'.repeat(200)}`, password: 'wrong' });
    await stranger.json('/client/queue', {}, 401);
    const facts = async (text: string) =>
      (await logged(`/logs?q=${encodeURIComponent(text)}&format=json`)).map(({ line: { msg, remote, user } }) => [
        msg,
        remote,
        user,
      ]);
    assert.deepEqual(await facts('signed in guest'), [['signed in', '127.0.0.1', 'guest']]);
    assert.deepEqual(await facts('mallory'), [['sign-in refused', '127.0.0.1', `mallory-${'x'.repeat(92)}`]]);
    const [accepted] = await logged(`/logs?q=accepted&format=json`);
    assert.deepEqual(accepted?.line['to'], [
      { recipient: 'postmaster@localhost', target: 'mailbox', destination: 'postmaster@localhost' },
    ]);
  });

  test('leads from an address to its mailbox, in any form of the address', async () => {
    for (const text of ['postmaster@localhost', ' <postmaster@LOCALHOST> ']) {
      const [first, ...others] = await found(text);
      assert.deepEqual([first?.title, first?.href], ['Mailbox postmaster@localhost', '/store/localhost/postmaster']);
      assert.ok(others.some(({ href }) => href.startsWith('/logs?q=')));
    }
    assert.match(await server.admin.page(path('postmaster@localhost')), /<a href="\/store\/localhost\/postmaster">/);
    assert.equal((await server.admin.request('/store/localhost/postmaster')).status, 200);
  });

  test('leads from the uid of a queue entry to its page, and from its recipient to that page or to a list', async () => {
    const envelopes = [{ mail: 'anna@localhost', rcpt: ['bert@elsewhere.example'], subject: 'x', text: 'y' }];
    const sent = await server.admin.request('/client/queue', { json: { route: 'nowhere', envelopes } });
    assert.equal(sent.status, 202, sent.text);
    const { uid } = JSON.parse(sent.text) as { uid: string };
    const { status, headers } = await server.admin.request(path(` ${uid.toUpperCase()} `), { accept: 'text/html' });
    assert.deepEqual([status, headers.get('location')], [303, `/client/queue/${uid}`]);
    assert.equal((await server.admin.request(`/client/queue/${uid}`)).status, 200);
    const [one] = await found('bert@elsewhere.example');
    assert.deepEqual([one?.title, one?.href], ['One entry of the queue', `/client/queue/${uid}`]);
    const more = await server.admin.request('/client/queue', { json: { route: 'nowhere', envelopes } });
    assert.equal(more.status, 202, more.text);
    const other = (JSON.parse(more.text) as { uid: string }).uid;
    const [list] = await found('bert@elsewhere.example');
    assert.equal(list?.title, '2 entries of the queue');
    const { items } = (await server.admin.json(list?.href ?? '')) as { items: readonly { uid: string }[] };
    assert.deepEqual(items.map((entry) => entry.uid).toSorted(), [uid, other].toSorted());
    assert.equal(((await server.admin.json('/')) as { queue: number }).queue, 2);
  });

  test('leads nowhere where the reader may not go, and never out of this server', async () => {
    const guest = new HttpClient(server.base, { username: 'guest', password: 'the password of a guest' });
    assert.deepEqual(await found('nobody@elsewhere.example', guest), []);
    assert.match(await guest.page(path('<script>alert(1)</script>')), /No results/);
    for (const text of ['//elsewhere.example/', 'https://elsewhere.example/', '\\\\elsewhere', 'a b "c']) {
      for (const { href } of await found(text)) assert.match(href, /^\/[a-z]/);
    }
    assert.equal((await server.admin.request(path('x'.repeat(999)))).status, 400);
  });
});

test('a start warns when other users may look into the data folder', async (t) => {
  const server = await startInProcess(t, undefined, {}, async (folder) => {
    await mkdir(join(folder, 'data'));
    await chmod(join(folder, 'data'), 0o777);
  });
  const { items } = (await server.admin.json('/logs?level=warn&format=json')) as Logs;
  const [warning] = items.filter(({ line }) => /other users/.test(String(line['msg'])));
  assert.equal(warning?.line['mode'], '777');
});
