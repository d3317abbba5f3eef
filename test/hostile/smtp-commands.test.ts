import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { conversations } from './smtp-conversations.js';
import { header, password, SmtpFixture } from './smtp-fixture.js';

const suite = suiteEnding();
const plain = (name: string, secret: string) => `AUTH PLAIN ${Buffer.from(`\0${name}\0${secret}`).toString('base64')}`;

describe('hostile commands against the whole server', () => {
  let fixture: SmtpFixture;
  before(async () => {
    fixture = await SmtpFixture.start(suite);
    await fixture.addUser('anna@localhost');
  });

  for (const { id, title, listener = 'mx', steps } of conversations) {
    test(`${id} ${title}`, () => fixture.converse(listener, steps));
  }

  test('S01 MAIL before a hello is 503', async () => {
    const client = await fixture.connect();
    await client.readReply();
    for (const line of ['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>', 'DATA']) {
      assert.match((await client.command(line)).raw, /^503 5\.5\.1 /);
    }
    assert.equal((await client.command('EHLO client.example')).code, 250);
    client.close();
  });

  test('S09 the recipient beyond the limit is 452, and the others get the message', async () => {
    const client = await fixture.greeted();
    const recipients = Array.from({ length: 1001 }, () => 'RCPT TO:<postmaster@localhost>');
    const replies = await client.pipeline(['MAIL FROM:<a@sender.example>', ...recipients]);
    assert.deepEqual(new Set(replies.slice(0, -1).map(({ code }) => code)), new Set([250]));
    assert.match(replies.at(-1)?.raw ?? '', /^452 4\.5\.3 /);
    const stored = (await fixture.stored()).length;
    assert.equal((await client.data(`${header}for many\r\n`)).code, 250);
    assert.equal((await fixture.stored()).length, stored + 1);
    client.close();
  });

  test('S11 pipelined MAIL, a hundred RCPT and DATA are answered in order, one reply each', async () => {
    const client = await fixture.greeted();
    const good = (n: number) => n % 10 !== 0;
    const recipients = Array.from({ length: 100 }, (_, n) => (good(n) ? 'postmaster' : `nobody${n}`));
    const replies = await client.pipeline([
      'MAIL FROM:<a@sender.example>',
      ...recipients.map((name) => `RCPT TO:<${name}@localhost>`),
      'DATA',
    ]);
    const expected = recipients.map((_, n) => (good(n) ? 250 : 550));
    assert.deepEqual(
      replies.map(({ code }) => code),
      [250, ...expected, 354],
    );
    assert.equal((await fixture.send(client, `${header}.\r\n`)).code, 250);
    assert.equal(client.unread, '');
    client.close();
  });

  test('S18 AUTH is not listed before TLS, nor where mail comes from strangers', async () => {
    for (const listener of ['tls', 'mx'] as const) {
      const client = await fixture.greeted(listener);
      const { raw } = await client.command('EHLO client.example');
      assert.doesNotMatch(raw, /AUTH/);
      client.close();
    }
  });

  test('S19 AUTH within a transaction and after a sign-in is 503', async () => {
    const client = await fixture.greeted('submission');
    assert.equal((await client.command(plain('anna@localhost', password))).code, 235);
    assert.match((await client.command(plain('anna@localhost', password))).raw, /^503 5\.5\.1 /);
    assert.equal((await client.command('MAIL FROM:<anna@localhost>')).code, 250);
    assert.match((await client.command('AUTH LOGIN')).raw, /^503 5\.5\.1 /);
    client.close();
  });

  test('S20 S21 known and unknown users are refused in the same words, and the fourth failure ends the session', async () => {
    const said: string[] = [];
    const client = await fixture.greeted('submission');
    for (const name of ['anna@localhost', 'nobody@localhost', 'postmaster@localhost']) {
      said.push((await client.command(plain(name, 'wrong'))).raw);
    }
    assert.equal(new Set(said).size, 1);
    assert.match(said[0] ?? '', /^535 5\.7\.8 /);
    assert.match((await client.command(plain('anna@localhost', 'wrong'))).raw, /^421 4\.7\.0 /);
    await client.waitForEnd();
    client.close();
  });

  test('S33 a user who has signed in may relay by the queue, and nowhere in a form that hides where it goes', async () => {
    const client = await fixture.greeted('submission');
    assert.equal((await client.command(plain('anna@localhost', password))).code, 235);
    await client.command('MAIL FROM:<anna@localhost>');
    assert.equal((await client.command('RCPT TO:<b@elsewhere.example>')).code, 250);
    for (const hidden of [
      'b%elsewhere.example@localhost',
      'elsewhere.example!b@localhost',
      '"b@elsewhere.example"@localhost',
    ])
      assert.match((await client.command(`RCPT TO:<${hidden}>`)).raw, /^55[04] 5\.[17]\.1 /, hidden);
    client.close();
  });
});
