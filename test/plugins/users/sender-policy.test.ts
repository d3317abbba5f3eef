import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../support/ending.js';
import { startInProcess, type InProcessServer } from '../../support/in-process-server.js';
import { SmtpClient } from '../../support/smtp-client.js';

const suite = suiteEnding();
const password = 'a password of anna';

const configuration = (senders?: string): string =>
  JSON.stringify({
    domains: ['b.test', 'a.test'],
    smtp: {
      listeners: [
        { name: 'in', mode: 'mx', port: 0 },
        { name: 'out', mode: 'submission', port: 0, allowPlaintextAuth: true },
      ],
    },
    ...(senders !== undefined && { plugins: { users: { senders } } }),
  });

async function start(senders?: string): Promise<InProcessServer> {
  const server = await startInProcess(suite, configuration(senders));
  await server.admin.json('/users', { json: { username: 'anna@b.test', password, aliases: ['info@a.test'] } }, 201);
  await server.admin.json('/users', { json: { username: 'boss@a.test' } }, 201);
  return server;
}

async function signedIn(server: InProcessServer): Promise<SmtpClient> {
  const client = await SmtpClient.greeted({ port: server.portOf('out') });
  const { code } = await client.command(`AUTH PLAIN ${Buffer.from(`\0anna@b.test\0${password}`).toString('base64')}`);
  assert.equal(code, 235);
  return client;
}

/** The reply to MAIL if that is a refusal, else that to the message. */
async function send(client: SmtpClient, from: string, header: string): Promise<string> {
  const mail = await client.command(`MAIL FROM:<${from}>`);
  if (mail.code !== 250) return mail.raw.trim();
  assert.equal((await client.command('RCPT TO:<postmaster@b.test>')).code, 250);
  assert.equal((await client.command('DATA')).code, 354);
  client.write(`${header}\r\nSubject: x\r\n\r\nhello\r\n`);
  return (await client.command('.')).raw.trim();
}

const refused = (address: string) => `550 5.7.1 anna@b.test may not send as ${address}`;

describe('a signed-in user', () => {
  let server: InProcessServer;

  before(async () => {
    server = await start();
  });

  for (const [from, header] of [
    ['anna@b.test', 'From: Anna <anna@b.test>'],
    ['Anna+news@b.test', 'From: "boss@a.test" <anna+news@b.test>'],
    ['info@a.test', 'From: info@a.test'],
    ['', 'From: anna@b.test'],
    ['anna@b.test', 'X-None: no author'],
  ] as const) {
    test(`F-S4 sends as <${from}> with ${header}`, async () => {
      const client = await signedIn(server);
      assert.match(await send(client, from, header), /^250 /);
      client.close();
    });
  }

  for (const [from, header, address] of [
    ['boss@a.test', 'From: anna@b.test', 'boss@a.test'],
    ['other@b.test', 'From: anna@b.test', 'other@b.test'],
    ['boss@elsewhere.test', 'From: anna@b.test', 'boss@elsewhere.test'],
    ['anna@b.test', 'From: boss@a.test', 'boss@a.test'],
    ['anna@b.test', 'From: anna@b.test, boss@a.test', 'boss@a.test'],
    ['anna@b.test', 'From: anna@b.test\r\nFrom: boss@a.test', 'boss@a.test'],
    ['anna@b.test', 'From: anna@b.test\r\nSender: boss@a.test', 'boss@a.test'],
    ['', 'From: team: anna@b.test, Boss <BOSS@a.test>;', 'BOSS@a.test'],
  ] as const) {
    test(`F-S4 does not send as <${from}> with ${JSON.stringify(header)}`, async () => {
      const client = await signedIn(server);
      assert.equal(await send(client, from, header), refused(address));
      client.close();
    });
  }

  const long = '554 5.6.0 The header is too long to find all its authors';
  const extra = (count: number, size = 1) => `X: ${'1'.repeat(size)}\r\n`.repeat(count);
  const own = 'anna@b.test';
  for (const [what, header, answer] of [
    ['after 2,000 fields', `${extra(2000)}From: boss@a.test`, long],
    ['after 300 KiB of header', `${extra(350, 900)}From: boss@a.test`, long],
    ['after 300 KiB of header that begins with no field', `no field\r\n${extra(350, 900)}From: boss@a.test`, long],
    ['as the second From, after 2,000 fields', `From: ${own}\r\n${extra(2000)}From: boss@a.test`, long],
    ['after 10,000 own addresses', `From: ${`${own},\r\n `.repeat(10_000)}boss@a.test`, long],
    ['after 256 KiB of folded blanks', `From: ${own}${`\r\n ${' '.repeat(900)}`.repeat(300)}, boss@a.test`, long],
    [
      'whose name has blanks and a fold',
      `From: ${own}\r\nFrom${' '.repeat(300)}\r\n : boss@a.test`,
      refused('boss@a.test'),
    ],
    [
      'after a comment',
      `From: <(${'c'.repeat(900)}\r\n ${'c'.repeat(900)}\r\n ${'c'.repeat(900)})boss@a.test>`,
      /^550 5\.7\.1 /,
    ],
    ['in a comment without end', 'From: (boss@a.test', refused('(boss@a.test')],
    ['before another in brackets', `From: <boss@a.test> <${own}>`, refused('boss@a.test')],
  ] as const) {
    test(`F-S4 does not send with the address of another ${what}`, async () => {
      const client = await signedIn(server);
      const got = await send(client, own, header);
      if (typeof answer === 'string') assert.equal(got, answer);
      else assert.match(got, answer);
      client.close();
    });
  }

  test('F-I1 gets Message-ID and Date added where they are missing, and nothing where they are not', async () => {
    const client = await signedIn(server);
    assert.match(await send(client, 'anna@b.test', 'From: anna@b.test\r\nX-Case: bare'), /^250 /);
    const own = 'From: anna@b.test\r\nMessage-ID: <own@b.test>\r\nDate: Sat, 21 Nov 2026 00:43:14 +0000';
    assert.match(await send(client, 'anna@b.test', own), /^250 /);
    client.close();
    const page = await server.admin.json('/store/b.test/postmaster/folders/INBOX?limit=100');
    const all = (page as { items: readonly { internetMessageId: string | null; date: string | null }[] }).items;
    const ids = all.map(({ internetMessageId }) => internetMessageId);
    assert.ok(ids.includes('<own@b.test>'));
    assert.ok(
      ids.every((id) => id !== null && /^<[^<>@\s]+@[^<>@\s]+>$/.test(id)),
      JSON.stringify(ids),
    );
    assert.ok(all.every(({ date }) => date !== null));
  });

  test('F-S4 a long header of a stranger is taken', async () => {
    const client = await SmtpClient.greeted({ port: server.portOf('in') });
    assert.match(await send(client, 'x@elsewhere.test', `${extra(2000)}From: y@elsewhere.test`), /^250 /);
    assert.match(await send(client, 'x@elsewhere.test', `${extra(350, 900)}From: y@elsewhere.test`), /^250 /);
    client.close();
  });

  test('F-S4 is explained before anything is sent', async () => {
    const question = {
      ip: '192.0.2.1',
      ehlo: 'x.example',
      mail: 'boss@a.test',
      rcpt: ['r@far.test'],
      mode: 'submission',
      authenticated: 'anna@b.test',
    };
    const answer = JSON.stringify(await server.admin.json('/pipeline/explain', { json: question }));
    assert.match(answer, /anna@b\.test may not send as boss@a\.test/);
  });
});

describe('other policies', () => {
  test('F-S4 "domain" lets a user send for the domains of the own addresses', async () => {
    const server = await start('domain');
    const client = await signedIn(server);
    assert.match(await send(client, 'boss@a.test', 'From: other@b.test'), /^250 /);
    assert.equal(await send(client, 'x@elsewhere.test', 'From: anna@b.test'), refused('x@elsewhere.test'));
    client.close();
  });

  test('F-S4 "any" lets a user send as anybody', async () => {
    const server = await start('any');
    const client = await signedIn(server);
    assert.match(await send(client, 'x@elsewhere.test', 'From: y@elsewhere.test'), /^250 /);
    client.close();
  });
});
