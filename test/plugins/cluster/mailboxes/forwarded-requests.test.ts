import assert from 'node:assert/strict';
import { request } from 'node:http';
import { before, describe, test } from 'node:test';
import { adminPassword } from '../../../support/server-process.js';
import { suiteEnding } from '../../../support/ending.js';
import { HttpClient } from '../../../support/http-client.js';
import { skipWithout } from '../../../support/peers.js';
import { until, untilTrue } from '../../../support/until.js';
import { OwnerSite, sendMail, type SiteNode } from './owner-site.js';

const inbox = '/store/example.org/ann/folders/INBOX';
const secret = 'wood-lamp-river-9';

interface Listed {
  readonly items: readonly { readonly id: string; readonly subject: string }[];
}

/** What a mailbox of another node is to the clients of a node. */
describe('the mailbox of another node', { skip: skipWithout('postgres') }, () => {
  let site: OwnerSite;
  let owner: SiteNode;
  let other: SiteNode;
  const ending = suiteEnding();
  const accounts = (node: string): readonly object[] => [
    { username: 'anywhere', password: secret, role: 'operate' },
    { username: 'lesser', password: secret, role: node === 'mx1' ? 'operate' : 'read' },
    { username: 'lesser-too', password: secret, role: node === 'mx1' ? 'read' : 'operate' },
    { username: `only-${node}`, password: secret, role: 'admin' },
  ];
  const as = (node: SiteNode, username: string): HttpClient =>
    new HttpClient(node.server.http, { username, password: secret });

  before(async () => {
    site = await OwnerSite.start(ending, ['mx1', 'mx2'], { http: (node) => ({ accounts: accounts(node) }) });
    await site.users('mx1', 'ann');
    owner = site.node(await site.ownerOf('ann'));
    other = site.node(owner.name === 'mx1' ? 'mx2' : 'mx1');
    await untilTrue('the owner knows the user', async () => (await sendMail(owner, ['ann'], 'one')) === 250);
    assert.equal(await sendMail(owner, ['ann'], 'two'), 250);
    await until('the other node knows the owner', async () => {
      const answer = await other.admin.request(inbox, { accept: 'application/json' });
      return answer.status === 200 && (JSON.parse(answer.text) as Listed).items.length === 2 ? answer : undefined;
    });
  });
  const list = async (node: SiteNode): Promise<Listed> => (await node.admin.json(inbox)) as Listed;

  test('is read as if it were its own', async () => {
    assert.deepEqual(await list(other), await list(owner));
    const page = await other.admin.page(inbox);
    assert.match(page, /one[^]*two|two[^]*one/);
    assert.match(page, new RegExp(`<span class="host"[^>]*>${owner.name}.example.org`));
    const [newest] = (await list(other)).items;
    const message = `${inbox}/messages/${encodeURIComponent(newest?.id ?? '')}`;
    for (const [accept, ranged] of [
      ['message/rfc822', 'bytes=0-9'],
      ['message/rfc822', undefined],
      ['text/plain', undefined],
    ] as const) {
      const options = { accept, headers: ranged === undefined ? {} : { Range: ranged } };
      const [here, there] = await Promise.all([owner, other].map((node) => node.admin.request(message, options)));
      assert.equal(there?.status, ranged === undefined ? 200 : 206);
      assert.deepEqual(there?.bytes, here?.bytes);
      for (const name of ['content-type', 'content-length', 'etag', 'content-range', 'content-security-policy', 'vary'])
        assert.equal(there?.headers.get(name), here?.headers.get(name), name);
    }
    assert.equal((await other.admin.request(`${inbox}/messages/none`, { accept: 'text/html' })).status, 404);
  });

  test('gives the sandbox of HTML mail as it is', async () => {
    const [newest] = (await list(other)).items;
    const path = `${inbox}/messages/${encodeURIComponent(newest?.id ?? '')}/html`;
    const [here, there] = await Promise.all([owner, other].map((node) => node.admin.request(path)));
    assert.equal(there?.status, here?.status);
    for (const name of ['content-security-policy', 'x-frame-options', 'referrer-policy'])
      assert.equal(there?.headers.get(name), here?.headers.get(name), name);
  });

  test('answers HEAD, and 304 for what the client has', async () => {
    const { headers } = await other.admin.request(inbox, { accept: 'application/json' });
    const etag = headers.get('etag') ?? '';
    assert.notEqual(etag, '');
    const same = await other.admin.request(inbox, { accept: 'application/json', headers: { 'If-None-Match': etag } });
    assert.equal(same.status, 304);
    const head = await other.admin.request(inbox, { accept: 'application/json', method: 'HEAD' });
    assert.equal(head.status, 200);
    assert.equal(head.text, '');
  });

  test('takes uploads of any kind, once for a key', async () => {
    const before = (await list(owner)).items.length;
    const raw = (subject: string, size: number): string =>
      `From: a@example.org\r\nSubject: ${subject}\r\n\r\n${'x'.repeat(70)}\r\n`.padEnd(size, 'line\r\n');
    const rfc822 = { 'Content-Type': 'message/rfc822' };
    const large = raw('large', 3_000_000);
    const filed = await other.admin.request(`${inbox}/messages`, { body: large, headers: rfc822 });
    assert.equal(filed.status, 201, filed.text);
    assert.ok((await site.inbox(owner.name, 'ann')).includes(large));
    const form = new FormData();
    for (const name of ['f1', 'f2']) form.append('file', new Blob([raw(name, 5000)]), `${name}.eml`);
    const multipart = await fetch(new URL(`${inbox}/messages`, other.server.http), {
      method: 'POST',
      body: form,
      headers: { Authorization: `Basic ${btoa(`admin:${adminPassword}`)}`, Accept: 'application/json' },
    });
    assert.equal(multipart.status, 201, await multipart.text());
    assert.equal((await list(owner)).items.length, before + 3);
    const key = { 'Idempotency-Key': 'once-for-all' };
    const draft = { json: { to: ['bob@example.net'], subject: 'A draft', text: 'Hello' }, headers: key };
    const drafts = '/store/example.org/ann/drafts';
    const made = (await other.admin.json(drafts, draft, 201)) as { readonly draftId: string };
    const again = await owner.admin.request(drafts, draft);
    assert.equal(again.headers.get('idempotency-replayed'), 'true', again.text);
    assert.equal((JSON.parse(again.text) as { draftId: string }).draftId, made.draftId);
    const attached = await other.admin.request(`${drafts}/${made.draftId}/attachments?filename=a.bin`, {
      body: Buffer.alloc(1_000_000, 7),
      headers: { 'Content-Type': 'application/octet-stream' },
    });
    assert.equal(attached.status, 201, attached.text);
  });

  test('a form of a browser changes it, and leads back to its page', async () => {
    const site_ = { 'Sec-Fetch-Site': 'same-origin', Referer: new URL(inbox, other.server.http).href };
    const path = '/store/example.org/ann/folders';
    const done = await other.admin.request(path, { form: { name: 'Projects' }, accept: 'text/html', headers: site_ });
    assert.equal(done.status, 303, done.text);
    assert.match(done.headers.get('location') ?? '', /^\/store\/example\.org\/ann/);
    assert.match(await other.admin.page(done.headers.get('location') ?? ''), /Projects/);
    const refused = await other.admin.request(path, { form: { name: 'a/../b' }, accept: 'text/html', headers: site_ });
    assert.equal(refused.status, 422, refused.text);
    const foreign = { 'Sec-Fetch-Site': 'cross-site' };
    const forged = await other.admin.request(path, { form: { name: 'Evil' }, accept: 'text/html', headers: foreign });
    assert.equal(forged.status, 403);
    assert.doesNotMatch(JSON.stringify(await owner.admin.json(path)), /Evil/);
  });

  test('is shown to a browser that has signed in at the first node, and can sign out there', async () => {
    const signedIn = await other.admin.request('/sign-in', {
      form: { username: 'anywhere', password: secret },
      accept: 'text/html',
    });
    const cookie = (signedIn.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
    const page = await fetch(new URL(inbox, other.server.http), { headers: { Cookie: cookie, Accept: 'text/html' } });
    assert.equal(page.status, 200);
    assert.match(await page.text(), /Sign out/);
    assert.doesNotMatch(await other.admin.page(inbox), /Sign out/);
  });

  test('refuses what is too large before it is sent', async () => {
    const answer = await new Promise<{ status: number; text: string }>((resolve, reject) => {
      const asked = request(new URL(`${inbox}/messages`, other.server.http), {
        method: 'POST',
        headers: {
          Authorization: `Basic ${btoa(`admin:${adminPassword}`)}`,
          'Content-Type': 'message/rfc822',
          'Content-Length': 10_000_000_000,
        },
      });
      asked.on('error', reject);
      asked.on('response', (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString()));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      });
      asked.flushHeaders();
    });
    assert.equal(answer.status, 413, answer.text);
  });

  test('is read and changed by an account with the rights that it has at both nodes', async () => {
    const asked = async (name: string): Promise<number> =>
      (await as(other, name).request(inbox, { accept: 'application/json' })).status;
    assert.equal(await asked('anywhere'), 200);
    assert.equal(await asked('lesser'), 403);
    assert.equal(await asked('lesser-too'), 403);
    const unknown = await as(other, `only-${other.name}`).request(inbox, { accept: 'application/json' });
    assert.equal(unknown.status, 403);
    assert.match(unknown.text, new RegExp(`${owner.name}.example.org has no account only-${other.name}`));
  });

  test('tells the audit log of its node who changed it, and through which node, once', async () => {
    const changes = async () => {
      const { items } = (await owner.admin.json('/audit?result=all&limit=1000')) as {
        readonly items: readonly { node: string; via?: string; by: string; from: string; action?: string }[];
      };
      return items.filter(({ action }) => action === 'folder.create');
    };
    const [change, ...rest] = await until('it is copied', async () => {
      const found = await changes();
      return found.length > 0 ? found : undefined;
    });
    assert.deepEqual(rest, []);
    assert.equal(change?.node, owner.name);
    assert.equal(change?.via, other.name);
    assert.equal(change?.by, 'admin');
    assert.equal(change?.from, '127.0.0.1');
  });

  test('is away with its node: 503 names it, and says when to ask again', async () => {
    const before = (await list(owner)).items.map(({ subject }) => subject);
    const text = `From: a@example.org\r\nSubject: half\r\n\r\n${'line\r\n'.repeat(1000)}`;
    const answer = new Promise<number>((resolve, reject) => {
      const asked = request(new URL(`${inbox}/messages`, other.server.http), {
        method: 'POST',
        headers: {
          Authorization: `Basic ${btoa(`admin:${adminPassword}`)}`,
          'Content-Type': 'message/rfc822',
          'Content-Length': text.length * 100,
        },
      });
      asked.on('response', (response) => resolve(response.resume().statusCode ?? 0)).on('error', reject);
      asked.write(text);
      // The first part is on its way, and the owner writes it.
      setTimeout(() => void owner.server.kill('SIGKILL'), 300);
    });
    assert.equal(await answer, 503);
    const page = await other.admin.request(inbox, { accept: 'text/html' });
    assert.equal(page.status, 503);
    assert.match(page.text, new RegExp(`The node ${owner.name} has this, and does not answer now`));
    assert.notEqual(page.headers.get('retry-after'), null);
    owner = await site.again(owner.name);
    await untilTrue('it answers again', async () => (await other.admin.request(inbox)).status === 200, 20_000);
    assert.deepEqual(
      (await list(other)).items.map(({ subject }) => subject),
      before,
    );
  });
});
