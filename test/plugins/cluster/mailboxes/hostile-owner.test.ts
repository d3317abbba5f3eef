import assert from 'node:assert/strict';
import { request } from 'node:https';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { untilTrue } from '../../../support/until.js';
import { Authority, OwnerSite, sendMail, type SiteNode } from './owner-site.js';

const inbox = '/store/example.org/ann/folders/INBOX';

interface Asked {
  readonly status: number;
  readonly text: string;
}

/** Asks the port for other nodes, by POST with a body; rejects when there is no connection. */
function ask(
  { peerPort }: SiteNode,
  path: string,
  body: string | undefined,
  tls: { readonly ca: string; readonly key?: string; readonly cert?: string },
  headers: Readonly<Record<string, string>> = {},
): Promise<Asked> {
  return new Promise((resolve, reject) => {
    const method = body === undefined ? 'GET' : 'POST';
    const asked = request(
      { host: 'localhost', port: peerPort, path, method, agent: false, headers, ...tls },
      (answer) => {
        let text = '';
        answer.on('data', (chunk: Buffer) => (text += chunk.toString()));
        answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
      },
    );
    asked.on('error', reject).end(body);
  });
}

describe('what strangers may do to mailboxes of a cluster', { skip: skipWithout('postgres') }, () => {
  let site: OwnerSite;
  const ending = suiteEnding();
  const envelope = (more: object = {}): string =>
    `${JSON.stringify({
      id: 'forged',
      reversePath: 'boss@example.org',
      smtputf8: false,
      fresh: true,
      recipients: [{ address: 'ann@example.org', username: 'ann@example.org' }],
      ...more,
    })}\nSubject: forged\r\n\r\n`;
  before(async () => {
    site = await OwnerSite.start(ending, ['mx1', 'mx2']);
    await site.users('mx1', 'ann');
  });
  const owner = async (): Promise<SiteNode> => site.node(await site.ownerOf('ann'));

  test('nothing without a certificate, or with that of another authority', async () => {
    const { cert: ca } = site.authority;
    const other = new Authority();
    for (const pair of [{}, other.pair(), { ...other.pair(), ca: other.cert }])
      for (const path of ['/deliver', '/mailbox', '/ready', `/http${inbox}`])
        await assert.rejects(ask(await owner(), path, envelope(), { ca, ...pair }), path);
    assert.deepEqual(await site.subjects((await owner()).name, 'ann'), []);
  });

  test('nothing by words of the nodes at the public port', async () => {
    const { server } = await owner();
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    for (const word of ['XPOSTERN=forged', 'ID=forged', 'HANDEDOVER=1', 'MT-TRANSACTION=forged'])
      assert.equal((await client.command(`MAIL FROM:<a@example.net> ${word}`)).code, 555, word);
    assert.notEqual((await client.command('POST /deliver HTTP/1.1')).code, 250);
    client.close();
    const id = await site.node('mx1').admin.request('/deliver', { json: {}, accept: 'application/json' });
    assert.equal(id.status, 404);
  });

  test('no two messages are taken for one, whatever their headers say', async () => {
    const node = await owner();
    for (const nth of [1, 2])
      assert.equal(await sendMail(node, ['ann'], `same\r\nX-Postern-Id: forged-${nth > 0}`), 250);
    assert.deepEqual(await site.subjects(node.name, 'ann'), ['same', 'same']);
  });

  test('a node is not made to write outside of its mailboxes, nor to take one that does not move', async () => {
    const node = await owner();
    const other = site.node(node.name === 'mx1' ? 'mx2' : 'mx1');
    const tls = { ca: site.authority.cert, ...site.authority.pair() };
    const arrival = (from: string, revision: string): string =>
      `${JSON.stringify({ username: 'ann@example.org', from, revision })}\n`;
    const unasked = await ask(other, '/mailbox', arrival(node.name, '1'), tls);
    assert.equal(unasked.status, 409, unasked.text);
    // Of a node that is not there, so that nobody moves it.
    await site.sql(
      `update postern.mailbox_owner set node = 'mx9', moving = '${other.name}', revision = 1000 where username = 'ann@example.org'`,
    );
    for (const path of ['../ann', 'cur/../../x', '/etc/x', 'cur//x', '.', `${'a/'.repeat(30)}a`]) {
      const revision = await site.sql("select revision from postern.mailbox_owner where username = 'ann@example.org'");
      const file = `${JSON.stringify({ file: path, size: 0, mtimeMs: 0 })}\n`;
      const answer = await ask(other, '/mailbox', arrival('mx9', revision) + file, tls);
      assert.equal(answer.status, 500, path);
      assert.equal(answer.text, '{"detail":"Local error"}');
    }
    await site.sql(
      `with next as (update postern.revision set value = value + 1000 where name = 'mailbox-owners' returning value)
       update postern.mailbox_owner set node = '${node.name}', moving = null, revision = next.value from next
       where username = 'ann@example.org'`,
    );
  });

  test('mail that was handed over is handed no further', async () => {
    const node = await owner();
    const other = site.node(node.name === 'mx1' ? 'mx2' : 'mx1');
    const tls = { ca: site.authority.cert, ...site.authority.pair() };
    const answer = await ask(other, '/deliver', envelope(), tls);
    assert.equal(answer.status, 200, answer.text);
    assert.match(answer.text, /"outcome":"deferred".*"queue":true/);
    for (const broken of ['', '{}\n', 'x'.repeat(2_000_000), envelope({ recipients: [] })])
      assert.equal((await ask(other, '/deliver', broken, tls).catch(() => ({ status: 500 }))).status, 500);
  });

  test('pages that were forwarded are those of the owner again', async () => {
    const { node, other } = await both();
    await site.sql(
      `with next as (update postern.revision set value = value + 1000 where name = 'mailbox-owners' returning value)
       update postern.mailbox_owner set node = '${node.name}', moving = null, revision = next.value from next
       where username = 'ann@example.org'`,
    );
    const reads = async ({ admin: client }: SiteNode) => (await client.request(inbox)).status === 200;
    await untilTrue('both nodes know the owner', async () => (await reads(node)) && (await reads(other)));
  });

  const admin = { username: 'admin', role: 'admin' };
  /** What a node says of its client. */
  const client = (node: string, account: object | null = admin) => ({
    'Postern-Client': Buffer.from(JSON.stringify({ node, account, address: '192.0.2.1', session: false })).toString(
      'base64url',
    ),
    Accept: 'application/json',
  });
  const nodeTls = () => ({ ca: site.authority.cert, ...site.authority.pair() });
  const both = async () => {
    const node = await owner();
    return { node, other: site.node(node.name === 'mx1' ? 'mx2' : 'mx1') };
  };

  test('no page of a mailbox without an account, whatever a client says of itself', async () => {
    const { node, other } = await both();
    const forged = {
      'X-Forwarded-User': 'admin',
      ...client(other.name),
      'Postern-Account': 'admin',
      'X-Forwarded-For': '127.0.0.1',
    };
    for (const { server } of [node, other])
      for (const path of [inbox, `/http${inbox}`, `/logs?node=${node.name}`]) {
        const stranger = await fetch(new URL(path, server.http), { headers: forged });
        assert.equal(stranger.status, 401, path);
        assert.doesNotMatch(await stranger.text(), new RegExp(node.name));
      }
  });

  test('no request in the name of a node without its certificate', async () => {
    const { node, other } = await both();
    const { cert: ca } = site.authority;
    const path = `/http${inbox}`;
    assert.equal((await ask(node, path, undefined, nodeTls(), client(other.name))).status, 200);
    const ofAnother = { ca, ...site.authority.pair('mx7.internal') };
    assert.equal((await ask(node, path, undefined, ofAnother, client(other.name))).status, 403);
    for (const name of ['mx7', node.name, '', '../mx1'])
      assert.equal((await ask(node, path, undefined, nodeTls(), client(name))).status, 403, name);
    for (const field of ['', '{}', 'bm90IGpzb24', `${client(other.name)['Postern-Client']}, e30`])
      assert.equal((await ask(node, path, undefined, nodeTls(), { 'Postern-Client': field })).status, 403, field);
    assert.equal((await ask(node, path, undefined, nodeTls())).status, 403);
  });

  test('a node gets no more than the account of its client may here', async () => {
    const { node, other } = await both();
    const status = async (account: object | null): Promise<number> =>
      (await ask(node, `/http${inbox}`, undefined, nodeTls(), client(other.name, account))).status;
    assert.equal(await status({ username: 'admin', role: 'operate' }), 200);
    assert.equal(await status({ username: 'admin', role: 'read' }), 403);
    assert.equal(await status({ username: 'nobody', role: 'admin' }), 403);
    assert.equal(await status({ username: 'postern-owner', role: 'admin' }), 403);
    assert.equal(await status({ username: 'admin', role: 'root' }), 403);
    assert.equal(await status(null), 401);
  });

  test('a node reaches mailboxes and the log of another one, and nothing else', async () => {
    const { node, other } = await both();
    const paths = {
      '/users': 404,
      '/': 404,
      '/accounts': 404,
      '/store': 404,
      '/store/example.org': 404,
      '/sign-in': 404,
      '/health': 404,
      '/openapi.json': 404,
      '/assets/app.css': 404,
      '/http/users': 404,
      '/deliver': 404,
      '/store/../users': 400,
      '/store/%2e%2e/users': 400,
      '/store/example.org/ann/%2e%2e/%2e%2e/users': 400,
      '/store/example.org%2fann': 400,
      '/store/example.org/ann%2ffolders': 400,
      '/store/example.org/..%5cann': 400,
      '//store/example.org/ann': 404,
      '/store/example.org/ann/../../../users': 400,
      [inbox]: 200,
      '/logs?limit=1': 200,
    };
    for (const [path, status] of Object.entries(paths)) {
      const answer = await ask(node, `/http${path}`, undefined, nodeTls(), client(other.name));
      assert.equal(answer.status, status, `${path}: ${answer.text}`);
    }
    for (const path of ['/users', '/store/x', '/reload'])
      assert.equal((await ask(node, `/http${path}`, '', nodeTls(), client(other.name))).status, 404, path);
    const form = { ...client(other.name), 'Content-Type': 'application/x-www-form-urlencoded', Accept: 'text/html' };
    const refilled = await ask(
      node,
      '/http/store/example.org/ann/folders',
      'name=a%2f..&_page=/users',
      nodeTls(),
      form,
    );
    assert.equal(refilled.status, 422);
    assert.doesNotMatch(refilled.text, /bob@example/);
  });

  test('what a node has forwarded is forwarded no further', async () => {
    const { node, other } = await both();
    for (const path of [inbox, `/logs?node=${node.name}`]) {
      const answer = await ask(other, `/http${path}`, undefined, nodeTls(), client(node.name));
      assert.equal(answer.status, 421, answer.text);
      assert.match(answer.text, new RegExp(`The node ${node.name} has this`));
    }
  });

  test('tricks with paths lead nowhere by way of another node', async () => {
    const { other } = await both();
    for (const path of ['/store/example.org/ann%2f..%2f..%2fusers', '/store/example.org/ann%00'])
      assert.equal((await other.admin.request(path, { accept: 'application/json' })).status, 400, path);
    for (const path of ['/logs?node=mx9', '/logs?node=../mx2', '/logs?node=localhost:1'])
      assert.equal((await other.admin.request(path, { accept: 'application/json' })).status, 404, path);
  });
});
