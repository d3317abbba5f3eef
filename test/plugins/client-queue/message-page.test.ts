import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { ViewedMessage } from '../../../core/contracts/message-viewer.js';
import { suiteEnding } from '../../support/ending.js';
import { HttpClient } from '../../support/http-client.js';
import { type InProcessServer, startInProcess } from '../../support/in-process-server.js';
import { adminPassword, freeListeners } from '../../support/server-process.js';

const suite = suiteEnding();
const routes = { dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] } };
const accounts = ['admin', 'read'].map((role) => ({ username: role, password: adminPassword, role }));
const config = `{
  http: { accounts: ${JSON.stringify(accounts)} },
  smtp: { listeners: ${freeListeners} },
  plugins: { 'client-queue': ${JSON.stringify({ routes })} },
}`;
const message = [
  'From: Ann Example <ann@one.example>',
  'To: bob@dead.example',
  'Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=',
  'Content-Type: multipart/mixed; boundary=b',
  '',
  '--b',
  'Content-Type: multipart/alternative; boundary=c',
  '',
  '--c',
  'Content-Type: text/plain',
  '',
  'Good morning',
  '--c',
  'Content-Type: text/html',
  '',
  '<p>Good <b>morning</b></p><script>alert(1)</script><img src="https://tracker.example/x.png">',
  '--c--',
  '--b',
  'Content-Type: text/csv',
  'Content-Disposition: attachment; filename=figures.csv',
  'Content-Transfer-Encoding: base64',
  '',
  Buffer.from('a,b\r\n').toString('base64'),
  '--b--',
  '',
].join('\r\n');

describe('the message of a queue entry', () => {
  let server: InProcessServer;
  let reader: HttpClient;
  let path: string;

  before(async () => {
    server = await startInProcess(suite, config);
    reader = new HttpClient(server.base, { username: 'read', password: adminPassword });
    const { uid } = (await server.admin.json(
      '/client/queue?mail=ann@one.example&rcpt=bob@dead.example',
      { method: 'POST', headers: { 'Content-Type': 'message/rfc822' }, body: message },
      202,
    )) as { uid: string };
    path = `/client/queue/${uid}`;
  });

  test('is shown as a mailbox shows it: people, text, header fields, parts, source', async () => {
    const { admin } = server;
    const text = await admin.page(`${path}/content`);
    for (const wanted of [/Ann Example/, /<h1>Grüße</, /<div>Good morning/, /figures\.csv/]) assert.match(text, wanted);
    assert.match(await admin.page(`${path}/content?view=headers`), /<code>Subject<\/code>.*<code>Grüße<\/code>/s);
    assert.match(await admin.page(`${path}/content?view=structure`), /multipart\/alternative/);
    assert.match(await admin.page(`${path}/content?view=raw`), /boundary=c/);
    const viewed = ViewedMessage.parse(await admin.json(`${path}/content`));
    assert.deepEqual([viewed.subject, viewed.from?.address, viewed.parts.length], ['Grüße', 'ann@one.example', 5]);
    assert.match(await admin.page(path), new RegExp(`href="${path}/content"`));
  });

  test('has its HTML in a sandboxed frame, sanitised, with remote content only when it is wanted', async () => {
    const { admin } = server;
    const page = await admin.page(`${path}/content?view=html`);
    assert.match(page, new RegExp(`<iframe class="mail-html" src="${path}/content/html" sandbox=`));
    const { text, headers } = await admin.request(`${path}/content/html`);
    assert.match(text, /<b>morning<\/b>/);
    assert.doesNotMatch(text, /script|tracker\.example/);
    assert.match(headers.get('content-security-policy') ?? '', /default-src 'none'.*sandbox/);
    assert.match((await admin.request(`${path}/content/html?remote=1`)).text, /tracker\.example/);
  });

  test('gives its parts, decoded', async () => {
    const { admin } = server;
    const { text, headers } = await admin.request(`${path}/content/parts/2?download=1`);
    assert.equal(text, 'a,b\r\n');
    assert.match(headers.get('content-disposition') ?? '', /^attachment; filename="figures\.csv"/);
    assert.equal((await admin.request(`${path}/content/parts/9`)).status, 404);
    assert.equal((await admin.request(`${path}/content/parts/x`)).status, 400);
  });

  test('is hidden from accounts that may not read mail', async () => {
    for (const below of ['', '/html', '/parts/1']) {
      const { status } = await reader.request(`${path}/content${below}`);
      assert.equal(status, 403, below);
    }
    assert.doesNotMatch(await reader.page(path), /\/content/);
  });

  test('is gone with the message', async () => {
    const { admin } = server;
    await admin.json('/client/queue/delete', { json: { uid: path.split('/').at(-1) } });
    assert.equal((await admin.request(`${path}/content`)).status, 404);
    assert.equal((await admin.request('/client/queue/0000-none/content')).status, 404);
  });
});
