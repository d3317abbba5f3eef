import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { atEnd, type Ending } from '../../support/ending.js';
import { startInProcess } from '../../support/in-process-server.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { until } from '../../support/until.js';

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

test('a new user with a quota gets the first mail before the mailbox is counted', async (t) => {
  const { client, messages } = await sender(t, 'mx');
  await begin(client, ['full@localhost']);
  assert.equal(codes(await client.command(`${text}.`)), '250 2.0.0');
  assert.equal(await messages('full'), 1);
});

suite('a mailbox that turns out to be full after DATA', () => {
  test('is the matter of its recipient alone over LMTP', async (t) => {
    const { client, messages } = await sender(t, 'lmtp');
    for (const expected of [
      ['250 2.0.0', '250 2.0.0'],
      ['452 4.2.2', '250 2.0.0'],
    ]) {
      await begin(client);
      client.write(`${text}.\r\n`);
      assert.deepEqual((await client.readReplies(2)).map(codes), expected);
    }
    assert.deepEqual([await messages('full'), await messages('free')], [1, 2]);
  });

  test('gets the message later over SMTP, and the others get it now', async (t) => {
    const { client, admin, messages } = await sender(t, 'mx', { smtp: { relayNetworks: ['127.0.0.1'] } });
    const send = async (to?: readonly string[]): Promise<string> => {
      await begin(client, to);
      return codes(await client.command(`${text}.`));
    };
    assert.deepEqual([await send(), await send()], ['250 2.0.0', '250 2.0.0']);
    assert.deepEqual([await messages('full'), await messages('free')], [1, 2]);
    const { items } = (await admin.json('/client/queue/list')) as { readonly items: readonly Entry[] };
    assert.deepEqual(
      items.flatMap(({ recipients }) => recipients.map(({ address, lastReply }) => [address, lastReply?.status])),
      [['full@localhost', '4.2.2']],
    );
    assert.equal(await send(['full@localhost']), '452 4.2.2', 'nobody took it');
    assert.deepEqual([await messages('full'), await messages('free')], [1, 2]);
    await admin.json('/users/full@localhost', { method: 'PATCH', json: { quota: 2000 } });
    await admin.json('/client/queue/retry', { json: { uid: items[0]?.uid } });
    await until('the message that waited', async () => ((await messages('full')) === 2 ? true : undefined));
    assert.equal(await messages('free'), 2);
  });
});

test('a full mailbox keeps a message from no server elsewhere', async (t) => {
  const away = { mx: ['127.0.0.1'], port: 1, tls: 'never', domains: ['away.example'] };
  const { client, admin, messages } = await sender(t, 'mx', {
    smtp: { relayNetworks: ['127.0.0.1'] },
    plugins: { 'client-queue': { routes: { away } } },
  });
  for (const _ of [1, 2]) {
    await begin(client, ['full@localhost', 'bob@away.example']);
    assert.equal(codes(await client.command(`${text}.`)), '250 2.0.0');
  }
  assert.equal(await messages('full'), 1);
  const { items } = (await admin.json('/client/queue/list')) as { readonly items: readonly Entry[] };
  assert.deepEqual(items.flatMap(({ recipients }) => recipients.map(({ address }) => address)).toSorted(), [
    'bob@away.example',
    'bob@away.example',
    'full@localhost',
  ]);
});

test('a full mailbox keeps a message of a stranger from a live server: the client will send it again', async (t) => {
  const sink = await SmtpSink.start(t);
  const rule = { name: 'live', rcpt: '.*@live\\.example', hosts: [`127.0.0.1:${sink.port}`], tls: 'never' };
  const { client, messages } = await sender(t, 'mx', { plugins: { proxy: { rules: [rule] } } });
  const recipients = ['full@localhost', 'bob@live.example'];
  for (const [status, delivered] of [
    ['250 2.0.0', 1],
    ['452 4.2.2', 1],
    ['452 4.2.2', 1],
  ]) {
    await begin(client, recipients);
    assert.equal(codes(await client.command(`${text}.`)), status);
    assert.deepEqual([sink.messages.length, await messages('full')], [delivered, 1]);
  }
});

const text = `Subject: x\r\n\r\n${'x'.repeat(300)}\r\n`;

interface Entry {
  readonly uid: string;
  readonly recipients: readonly { readonly address: string; readonly lastReply?: { readonly status: string } }[];
}

const codes = ({ raw }: { readonly raw: string }): string => raw.slice(0, 9);

/** A client of a server whose user `full` has room for one `text`. */
async function sender(
  t: Ending,
  mode: 'mx' | 'lmtp',
  settings: { readonly smtp?: object; readonly plugins?: object } = {},
) {
  const smtp = { ...settings.smtp, listeners: [{ mode, port: 0 }] };
  const site = await startInProcess(t, JSON.stringify({ ...settings, smtp }));
  const { admin, folder } = site;
  for (const [username, quota] of [
    ['full@localhost', 700],
    ['free@localhost', null],
  ]) {
    await admin.json('/users', { json: { username, password: 'a long password', quota } }, 201);
  }
  const client = await SmtpClient.greeted(
    { port: site.portOf(mode) },
    `${mode === 'mx' ? 'EHLO' : 'LHLO'} client.example`,
  );
  atEnd(t, () => client.close());
  const messages = async (user: string): Promise<number> =>
    (await readdir(join(folder, 'data', 'mail', 'localhost', user, 'new'))).length;
  return { client, admin, messages };
}

/** Up to the answer to DATA; the size of the message is not told. */
async function begin(client: SmtpClient, to: readonly string[] = ['full@localhost', 'free@localhost']): Promise<void> {
  await client.command('MAIL FROM:<a@example.org>');
  for (const user of to) assert.match((await client.command(`RCPT TO:<${user}>`)).raw, /^250 /);
  assert.equal((await client.command('DATA')).code, 354);
}
