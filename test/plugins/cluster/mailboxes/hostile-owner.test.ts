import assert from 'node:assert/strict';
import { request } from 'node:https';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { until } from '../../../support/until.js';
import { Authority, OwnerSite, sendMail, type SiteNode } from './owner-site.js';

interface Asked {
  readonly status: number;
  readonly text: string;
}

/** Posts to the port for other nodes; rejects when there is no connection. */
function ask(
  { peerPort }: SiteNode,
  path: string,
  body: string,
  tls: { readonly ca: string; readonly key?: string; readonly cert?: string },
): Promise<Asked> {
  return new Promise((resolve, reject) => {
    const asked = request(
      { host: 'localhost', port: peerPort, path, method: 'POST', agent: false, ...tls },
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
      for (const path of ['/deliver', '/mailbox', '/ready'])
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

  test('pages of a mailbox name its node, and tell those who may not read it nothing', async () => {
    const node = await owner();
    const other = site.node(node.name === 'mx1' ? 'mx2' : 'mx1');
    await site.sql(
      `update postern.mailbox_owner set moving = null, revision = 2000 where username = 'ann@example.org'`,
    );
    const forged = { 'X-Forwarded-User': 'admin', 'X-Postern-Account': 'admin', 'X-Postern-Role': 'admin' };
    const path = '/store/example.org/ann/folders/INBOX';
    const stranger = await fetch(new URL(path, other.server.http), {
      headers: { Accept: 'application/json', ...forged },
    });
    assert.equal(stranger.status, 401);
    assert.doesNotMatch(await stranger.text(), new RegExp(node.name));
    const asked = await until('its node is known', async () => {
      const answer = await other.admin.request(path, { accept: 'application/json', headers: forged });
      return answer.text.includes(`is on the node ${node.name}`) ? answer : undefined;
    });
    assert.equal(asked.status, 421);
    assert.match((await other.admin.request(path, { accept: 'text/html' })).text, /Open it there/);
  });
});
