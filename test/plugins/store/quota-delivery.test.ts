import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startInProcess } from '../../support/in-process-server.js';
import { SmtpClient } from '../../support/smtp-client.js';

test('a full mailbox is refused at RCPT for now, and others of the message are not concerned', async (t) => {
  const site = await startInProcess(t);
  const { admin, folder } = site;
  const user = (username: string, quota: number | null) =>
    admin.json('/users', { json: { username, password: 'a long password', quota } }, 201);
  await user('full@localhost', 400);
  await user('free@localhost', null);
  const inbox = (name: string) => join(folder, 'data', 'mail', 'localhost', name);
  const looked = (await admin.json('/store/localhost/full')) as { readonly quota: number; readonly size: number };
  assert.deepEqual([looked.quota, looked.size], [400, 0], 'who was added a moment ago has an empty mailbox');
  assert.deepEqual((await readdir(inbox('full'))).toSorted(), ['cur', 'new', 'tmp']);

  const client = await SmtpClient.greeted({ port: site.portOf('mx') });
  t.after(() => client.socket.destroy());
  const send = async (size: number): Promise<readonly string[]> => {
    await client.command(`MAIL FROM:<a@example.org> SIZE=${size}`);
    const replies = [
      await client.command('RCPT TO:<full@localhost>'),
      await client.command('RCPT TO:<free@localhost>'),
    ];
    await client.command('DATA');
    replies.push(await client.command(`Subject: x\r\n\r\n${'x'.repeat(size)}\r\n.`));
    return replies.map(({ raw }) => raw.slice(0, 9));
  };
  assert.deepEqual(
    (await send(50)).map((reply) => reply.slice(0, 3)),
    ['250', '250', '250'],
  );
  assert.match(await readFile(join(inbox('full'), 'maildirsize'), 'utf8'), /^400S\n/);
  assert.deepEqual(
    (await send(350)).map((reply) => reply.slice(0, 9)),
    ['452 4.2.2', '250 2.1.5', '250 2.0.0'],
  );
  assert.equal((await readdir(join(inbox('full'), 'new'))).length, 1);
  assert.equal((await readdir(join(inbox('free'), 'new'))).length, 2);
});
