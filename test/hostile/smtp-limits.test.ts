import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import type { SmtpClient } from '../support/smtp-client.js';
import { until } from '../support/until.js';
import { header, SmtpFixture } from './smtp-fixture.js';

const suite = suiteEnding();
const plain = (name: string, secret: string) => `AUTH PLAIN ${Buffer.from(`\0${name}\0${secret}`).toString('base64')}`;

describe('hostile sessions against the limits of the whole server', () => {
  let fixture: SmtpFixture;
  before(async () => {
    const limits = {
      messageBytes: 10_000,
      clients: 30,
      clientsPerAddress: 20,
      exemptLoopback: false,
      authFailuresPerAddress: 1,
      authDelaySeconds: [],
      commandSeconds: 1,
      dataGraceSeconds: 0,
      dataBytesPerSecond: 1000,
      tlsSeconds: 1,
    };
    fixture = await SmtpFixture.start(suite, { limits }, { plugins: { users: { attempts: { limit: 1000 } } } });
  });

  async function open(): Promise<number> {
    const { text } = await fixture.server.admin.request('/metrics/prometheus');
    return [...text.matchAll(/^postern_smtp_sessions_open\S* (\d+)/gm)].reduce((sum, [, n]) => sum + Number(n), 0);
  }

  test('S04 a line without end is 421 at 16 KB', async () => {
    const client = await fixture.greeted();
    client.write('x'.repeat(10_000_000));
    assert.match((await client.readReply()).raw, /^421 4\.7\.0 /);
    await client.waitForEnd();
    client.close();
  });

  test('S05 the twenty-first error of any kind is 421 and the end', async () => {
    const errors = ['RCPT TO:<x@localhost>', 'DATA', 'JUNK', 'MAIL FROM:bad', 'EXPN a', 'MAIL FROM:<a@b> X=1'];
    const client = await fixture.greeted();
    const sent = Array.from({ length: 100 }, (_, n) => errors[n % errors.length] ?? '');
    client.write(sent.map((line) => `${line}\r\n`).join(''));
    const replies = await client.readReplies(21);
    assert.ok(replies.slice(0, 20).every(({ code }) => code >= 500));
    assert.match(replies[20]?.raw ?? '', /^421 4\.7\.0 /);
    await client.waitForEnd();
    assert.equal(client.unread, '');
    client.close();
  });

  test('S08 a body over the declared size and the limit is 552 at the dot; by a quarter more it is cut', async () => {
    const client = await fixture.greeted();
    await client.pipeline(['MAIL FROM:<a@sender.example> SIZE=100', 'RCPT TO:<postmaster@localhost>', 'DATA']);
    assert.match(
      (await fixture.send(client, `${header}${`${'x'.repeat(98)}\r\n`.repeat(110)}.\r\n`)).raw,
      /^552 5\.3\.4 /,
    );
    await fixture.toData(client);
    assert.match((await fixture.send(client, `${header}${`${'x'.repeat(98)}\r\n`.repeat(500)}`)).raw, /^552 5\.3\.4 /);
    await client.waitForEnd();
    client.close();
    assert.deepEqual(await fixture.stored(), []);
  });

  test('S10 a whole session in one packet is 554 at DATA, and nothing of it is stored', async () => {
    const client = await fixture.connect();
    await client.readReply();
    client.write(
      `EHLO c.example\r\nMAIL FROM:<a@sender.example>\r\nRCPT TO:<postmaster@localhost>\r\nDATA\r\n${header}x\r\n.\r\nQUIT\r\n`,
    );
    const replies = await client.readReplies(4);
    assert.match(replies[3]?.raw ?? '', /^554 5\.5\.0 /);
    await client.waitForEnd();
    assert.equal(client.unread, '');
    assert.deepEqual(await fixture.stored(), []);
    client.close();
  });

  for (const [name, bytes] of Object.entries({
    'a command': 'STARTTLS\r\nEHLO evil.example\r\nMAIL FROM:<evil@sender.example>\r\n',
    'part of a line': 'STARTTLS\r\nMAIL FROM:<evil',
    '3,000 lines': `STARTTLS\r\n${'NOOP\r\n'.repeat(3000)}`,
  })) {
    test(`S17 ${name} in the packet of STARTTLS is not executed`, async () => {
      const client = await fixture.greeted('tls');
      client.write(bytes);
      assert.equal((await client.readReply()).code, 220);
      await client.startTls();
      assert.match((await client.command('MAIL FROM:<a@sender.example>')).raw, /^503 5\.5\.1 /);
      assert.equal((await client.command('EHLO client.example')).code, 250);
      assert.match((await client.command('STARTTLS')).raw, /^503 /);
      assert.equal(client.unread, '');
      client.close();
    });
  }

  test('S17 an argument is 501, and junk or a reset instead of a handshake does no harm', async () => {
    for (const leave of [(c: SmtpClient) => c.write('junk\r\n'.repeat(100)), (c: SmtpClient) => c.reset()]) {
      const client = await fixture.greeted('tls');
      assert.match((await client.command('STARTTLS now')).raw, /^501 /);
      assert.equal((await client.command('STARTTLS')).code, 220);
      leave(client);
      await client.waitForEnd();
      client.close();
    }
    await fixture.assertAlive();
  });

  test('S22 commands sent before the 220 are never executed', async () => {
    const client = await fixture.connect();
    client.write('EHLO early.example\r\nMAIL FROM:<a@sender.example>\r\n');
    const first = await client.readReply();
    assert.ok(first.code === 554 || first.code === 220, first.raw);
    client.close();
    assert.deepEqual(await fixture.stored(), []);
  });

  for (const verb of ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'CONNECT', 'PRI']) {
    test(`S23 H39 ${verb} of an HTTP client is 421 and the end, its body is never read as commands`, async () => {
      const client = await fixture.connect();
      await client.readReply();
      client.write(
        `${verb} http://x/ HTTP/1.1\r\nHost: x\r\n\r\nEHLO x.example\r\nMAIL FROM:<a@sender.example>\r\nRCPT TO:<postmaster@localhost>\r\nDATA\r\n`,
      );
      assert.match((await client.readReply()).raw, /^421 /);
      await client.waitForEnd();
      assert.equal(client.unread, '');
      client.close();
    });
  }

  for (const [name, hex] of Object.entries({ 'a TLS hello': '16030100c8010000c40303', binary: '00010203fffe0a' })) {
    test(`S23 ${name} on the plain port is 421 and the end`, async () => {
      const client = await fixture.connect();
      await client.readReply();
      client.write(Buffer.from(hex, 'hex'));
      assert.match((await client.readReply()).raw, /^421 /);
      await client.waitForEnd();
      client.close();
    });
  }

  test('S20 an address with too many wrong passwords gets 454 even for the right one', async () => {
    const client = await fixture.greeted('submission');
    assert.match((await client.command(plain('nobody@localhost', 'wrong'))).raw, /^535 5\.7\.8 /);
    assert.match((await client.command(plain('postmaster@localhost', 'whatever'))).raw, /^454 4\.7\.0 /);
    client.close();
  });

  test('S24 a client that drips is cut in commands, in DATA and in its handshake', async () => {
    const [command, data, tls] = await Promise.all([fixture.greeted(), fixture.atData(), fixture.greeted('tls')]);
    await tls.command('STARTTLS');
    const dripping = setInterval(() => {
      for (const client of [command, data, tls]) client.write('x');
    }, 100);
    try {
      assert.match((await command.readReply()).raw, /^421 4\.4\.2 /);
      assert.match((await data.readReply()).raw, /^421 4\.4\.2 /);
      await tls.waitForEnd();
    } finally {
      clearInterval(dripping);
    }
    for (const client of [command, data, tls]) client.close();
    assert.deepEqual(await fixture.stored(), []);
    await until('an empty spool', async () => ((await fixture.spooled()) === 0 ? true : undefined));
  });

  test('S25 a client that half-closes after the dot gets its 250; one that resets in DATA leaves nothing', async () => {
    const client = await fixture.atData();
    client.write(`${header}ended\r\n.\r\n`);
    client.halfClose();
    assert.equal((await client.readReply()).code, 250);
    const reset = await fixture.atData();
    reset.write(`${header}never ended\r\n`);
    reset.reset();
    const behind = await fixture.atData();
    behind.write(`${header}reset behind the dot\r\n.\r\n`);
    behind.socket.end(() => behind.reset());
    await until('all sessions closed', async () => ((await open()) === 0 ? true : undefined));
    const stored = await fixture.stored();
    assert.equal(stored.filter((file) => file.includes('\r\nended\r\n')).length, 1);
    assert.equal(stored.filter((file) => file.includes('never ended')).length, 0);
    assert.ok(stored.filter((file) => file.includes('reset behind the dot')).length <= 1);
    await until('an empty spool', async () => ((await fixture.spooled()) === 0 ? true : undefined));
  });

  test('S26 sessions beyond the limit of an address are 421, and the others continue', async () => {
    await until('all sessions closed', async () => ((await open()) === 0 ? true : undefined));
    const clients: SmtpClient[] = [];
    for (let n = 0; n < 20; n += 1) clients.push(await fixture.greeted());
    const late = await fixture.connect();
    assert.match((await late.readReply()).raw, /^421 4\.7\.0 /);
    await late.waitForEnd();
    late.close();
    assert.equal((await clients[0]?.command('NOOP'))?.code, 250);
    for (const client of clients) client.close();
    await until('all sessions closed', async () => ((await open()) === 0 ? true : undefined));
    await fixture.assertAlive();
  });
});

describe('a hostile client that does not wait for the greeting', () => {
  test('S22 is 554 and the end, with a line end or without', async (t) => {
    const fixture = await SmtpFixture.start(t, { listeners: [{ port: 0, greetDelayMs: 300 }] });
    const session = 'EHLO c.example\r\nMAIL FROM:<a@sender.example>\r\nRCPT TO:<postmaster@localhost>\r\nDATA\r\n';
    for (const early of ['E', 'EHLO early.example\r\n', `${session}${header}early\r\n.\r\n`]) {
      const client = await fixture.connect();
      client.write(early);
      assert.match((await client.readReply()).raw, /^554 5\.\d\.\d /);
      await client.waitForEnd();
      assert.equal(client.unread, '');
      client.close();
    }
    assert.deepEqual(await fixture.stored(), []);
    await fixture.assertAlive();
  });
});
