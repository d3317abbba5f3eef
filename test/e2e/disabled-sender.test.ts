import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startInProcess } from '../support/in-process-server.js';
import { freeListeners } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { until } from '../support/until.js';

const routes = { dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] } };
const config = `{ plugins: { 'client-queue': ${JSON.stringify({ routes })} }, smtp: { listeners: ${freeListeners} } }`;

interface List {
  readonly total: number;
  readonly items: readonly { readonly subject: string }[];
}

test('a notice to a user who is disabled goes into the mailbox, and mail of others is refused', async (t) => {
  const server = await startInProcess(t, config);
  const { admin } = server;
  await admin.json('/users', { json: { username: 'anna', password: 'a long enough secret' } }, 201);
  await admin.json('/client/destinations/route:dead', { method: 'PUT', json: { suspendFor: 3600 } });
  const envelopes = [{ mail: 'anna@localhost', rcpt: ['bob@dead.example'], subject: 'Offer', text: 'x' }];
  const { uid } = (await admin.json('/client/queue', { json: { envelopes } }, 202)) as { readonly uid: string };
  await admin.json('/users/anna@localhost', { method: 'PATCH', json: { disabled: true } });
  await admin.json('/client/queue/bounce', { json: { uid } });

  const inbox = '/store/localhost/anna/folders/INBOX';
  const { items } = await until('the notice', async () => {
    if ((await admin.request(inbox)).status !== 200) return undefined;
    const list = (await admin.json(inbox)) as List;
    return list.total === 0 ? undefined : list;
  });
  assert.match(items[0]?.subject ?? '', /deliver/i);
  assert.equal(((await admin.json('/client/queue/list?state=held')) as List).total, 0);

  const client = await SmtpClient.greeted({ port: server.portOf('mx') });
  t.after(() => client.close());
  await client.command('MAIL FROM:<>');
  assert.match((await client.command('RCPT TO:<anna@localhost>')).raw, /^550 5\.2\.1 /);
});
