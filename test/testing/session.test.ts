import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { accept, definePlugin, defer, next, reject } from '../../core/plugin.js';
import { drive } from '../kit/index.js';

const told: string[] = [];
const watchful = definePlugin({
  name: 'watchful',
  setup({ smtp }) {
    smtp.on('ehlo', ({ name }) => (name === 'bad.example' ? reject(550, '5.7.1', 'Bad name') : next()));
    smtp.on('auth', ({ username, password }) =>
      username === 'token' && password === 'secret' ? accept({ username: 'robot@example.org' }) : next(),
    );
    smtp.on('mailFrom', async ({ transaction: { session } }) => {
      await Promise.resolve();
      told.push(`${session.listener.mode} ${session.tls?.protocol ?? 'plain'} ${session.user?.username ?? 'nobody'}`);
      return next();
    });
    smtp.on('rcptTo', ({ address }) => (address.local === 'later' ? defer(451, '4.7.1', 'Later') : next()));
    smtp.watch('closed', ({ messages }) => void told.push(`closed ${messages}`));
  },
});

describe('a session of a test', () => {
  test('reads one reply to each line, whatever it says', async (t) => {
    const site = await drive(watchful, { test: t });
    const client = site.session({ ip: '2001:db8::7' });
    const greeting = await client.greeting;
    assert.deepEqual([greeting.code, greeting.stage, greeting.plugin], [220, 'connect', null]);
    const bad = await client.send('EHLO bad.example');
    assert.deepEqual([bad.code, bad.plugin, bad.stage], [550, 'watchful', 'ehlo']);
    const { text } = await client.send('EHLO good.example');
    assert.match(text, /^mx\.example\.org\nPIPELINING\n/);
    assert.deepEqual(await client.send('WHAT'), {
      verdict: 'reject',
      code: 500,
      status: '5.5.2',
      text: 'Command not recognised',
      stage: null,
      plugin: null,
    });
    assert.equal((await client.send('NOOP')).stage, null);
    assert.equal((await client.send('DATA')).code, 503);
    assert.equal((await client.send('QUIT')).code, 221);
    await client.close();
    assert.equal(client.ended, true);
    await assert.rejects(client.send('NOOP'), { message: 'The server has ended the session.' });
  });

  test('says all lines at once, and knows which hook answered which', async (t) => {
    const site = await drive(watchful, { test: t });
    const client = site.session();
    const answers = await client.pipeline([
      'EHLO good.example',
      'MAIL FROM:<anna@example.com>',
      'MAIL FROM:<berta@example.com>',
      'RCPT TO:<nonsense',
      'RCPT TO:<later@example.org>',
      'RCPT TO:<bob@elsewhere.example>',
      'RCPT TO:<bob@example.org>',
      'RSET',
      'MAIL FROM:<>',
      'NOOP',
    ]);
    assert.deepEqual(
      answers.map(({ code, plugin, stage }) => [code, plugin, stage]),
      [
        [250, null, 'ehlo'],
        [250, null, 'mailFrom'],
        [503, null, 'mailFrom'],
        [501, null, 'rcptTo'],
        [451, 'watchful', 'rcptTo'],
        [550, null, 'rcptTo'],
        [250, null, 'rcptTo'],
        [250, null, null],
        [250, null, 'mailFrom'],
        [250, null, null],
      ],
    );
    await client.close();
  });

  test('sends a message with its dots as they are, and as it was written', async (t) => {
    const site = await drive(watchful, { test: t });
    const client = site.session();
    await client.pipeline(['EHLO good.example', 'MAIL FROM:<anna@example.com>', 'RCPT TO:<bob@example.org>']);
    const eml = 'Subject: dots\r\n\r\n.\r\n..two\r\nÄ\r\n';
    assert.equal((await client.data(eml)).code, 250);
    assert.equal(site.mailbox('bob@example.org')[0]?.eml, eml);
    await client.pipeline(['MAIL FROM:<anna@example.com>', 'RCPT TO:<bob@example.org>']);
    assert.equal((await client.data(new Uint8Array([65, 58, 10, 0xe4, 10]))).status, '2.0.0');
    await client.close();
    const refused = await drive(watchful, { test: t });
    const early = refused.session();
    assert.equal((await early.data('Subject: early')).code, 503);
    await early.close();
  });

  test('continues under TLS and signs in, and runs the hooks of the plugin', async (t) => {
    told.length = 0;
    const site = await drive(watchful, { test: t });
    assert.equal((await site.mailFrom({ tls: true })).code, 250);
    assert.equal((await site.mailFrom({ tls: true, user: 'anna@example.org' })).code, 250);
    assert.equal((await site.mailFrom({ user: 'token', password: 'secret' })).code, 250);
    const wrong = await site.mailFrom({ user: 'anna@example.org', password: 'wrong' });
    assert.deepEqual([wrong.code, wrong.stage, wrong.plugin], [535, 'auth', null]);
    const client = site.session({ mode: 'submission' });
    await client.send('EHLO good.example');
    assert.equal((await client.send('MAIL FROM:<anna@example.org>')).code, 530);
    assert.equal((await client.signIn('token', 'secret')).plugin, 'watchful');
    await client.close();
    assert.deepEqual(
      told.filter((line) => !line.startsWith('closed')),
      ['mx TLSv1.3 nobody', 'submission TLSv1.3 anna@example.org', 'submission plain robot@example.org'],
    );
    assert.equal(told.filter((line) => line === 'closed 0').length, 5);
  });

  test('may say what no client should', async (t) => {
    const site = await drive(watchful, { test: t });
    const client = site.session();
    await client.greeting;
    client.write('NOOP\nNOOP\r\n');
    assert.equal((await client.reply()).text, 'Lines end with CRLF');
    assert.equal((await client.reply()).code, 250);
    client.write(Buffer.from([0xff, 0xfe, 13, 10]));
    assert.equal((await client.reply()).code, 501);
    await client.close();
  });

  test('over LMTP has an answer for each recipient', async (t) => {
    const site = await drive(watchful, { test: t });
    const client = site.session({ mode: 'lmtp' });
    assert.match((await client.greeting).text, /LMTP/);
    const answers = await client.pipeline([
      'LHLO bad.example',
      'LHLO mda.example',
      'MAIL FROM:<anna@example.com>',
      'RCPT TO:<bob@example.org>',
      'RCPT TO:<later@example.org>',
      'RCPT TO:<eve@example.org>',
    ]);
    assert.deepEqual(
      answers.map(({ code, plugin }) => `${code} ${plugin}`),
      ['550 watchful', '250 null', '250 null', '250 null', '451 watchful', '250 null'],
    );
    assert.equal((await client.data('Subject: one\n\nHello\n')).code, 250);
    assert.equal((await client.reply()).code, 250);
    await client.close();
    assert.deepEqual(
      site.delivered.map(({ mailbox }) => mailbox),
      ['bob@example.org', 'eve@example.org'],
    );
  });

  test('in one text ends where the server ends it, and says what is missing in it', async (t) => {
    const site = await drive(watchful, { test: t });
    const answers = await site.session('GET / HTTP/1.1\nHost: localhost');
    assert.deepEqual(
      answers.map(({ code }) => code),
      [220, 421],
    );
    await assert.rejects(
      site.session('EHLO a.example\nMAIL FROM:<>\nRCPT TO:<bob@example.org>\nDATA\nSubject: open'),
      /no line with a lone dot behind DATA/,
    );
  });

  test('many at once are kept apart', async (t) => {
    const site = await drive(watchful, { test: t });
    const names = Array.from({ length: 40 }, (_, n) => (n % 3 === 0 ? 'later' : `user${n}`));
    const answers = await Promise.all(
      names.map((name) => site.rcpt({ to: `${name}@example.org`, ip: '198.51.100.9' })),
    );
    assert.deepEqual(
      answers.map(({ verdict, plugin }) => [verdict, plugin]),
      names.map((name) => (name === 'later' ? ['defer', 'watchful'] : ['accept', null])),
    );
  });
});
