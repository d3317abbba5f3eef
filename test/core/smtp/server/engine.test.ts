import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isStartError } from '../../../../core/problem.js';
import { SmtpOptions } from '../../../../core/smtp/server/listeners.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { until } from '../../../support/until.js';
import { settingsOf, TestClock, TestEngine } from './test-engine.js';

describe('the engine', () => {
  it('announces what it honours and nothing else', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.connect();
    assert.equal((await client.readReply()).raw, '220 mx.test ESMTP Postern\r\n');
    const { lines } = await client.command('EHLO client.example');
    assert.deepEqual(lines, [
      'mx.test',
      'PIPELINING',
      'SIZE 52428800',
      '8BITMIME',
      'SMTPUTF8',
      'CHUNKING',
      'ENHANCEDSTATUSCODES',
    ]);
    assert.deepEqual((await client.command('HELO client.example')).lines, ['mx.test']);
    client.close();
  });

  it('listens on one port by default, loopback only', () => {
    const { listeners } = SmtpOptions.parse({});
    assert.deepEqual(
      listeners.map(({ name, host, port, mode, tls }) => ({ name, host, port, mode, tls })),
      [{ name: 'mx', host: '127.0.0.1', port: 2525, mode: 'mx', tls: 'none' }],
    );
  });

  it('a submission listener beyond loopback needs TLS or leave to do without', () => {
    const parse = (listener: object) => SmtpOptions.safeParse({ listeners: [{ mode: 'submission', ...listener }] });
    assert.equal(parse({ host: '0.0.0.0' }).success, false);
    assert.equal(parse({ host: '0.0.0.0', allowPlaintextAuth: true }).success, true);
    for (const host of ['127.0.0.1', '::1', 'localhost']) assert.equal(parse({ host }).success, true);
  });

  it('gives listeners of one name names of their own', () => {
    const { listeners } = SmtpOptions.parse({ listeners: [{}, { port: 1 }, { name: 'mx-2' }] });
    assert.equal(new Set(listeners.map(({ name }) => name)).size, 3);
  });

  it('a port that is taken is a sentence, and the other listeners are closed again', async (test) => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    test.after(() => taken.close());
    const { port } = taken.address() as AddressInfo;
    const engine = await TestEngine.create(test, { settings: { listeners: [{ port: 0 }, { port }] } });
    await assert.rejects(engine.engine.listen(), (error: Error) => {
      assert.ok(isStartError(error));
      assert.equal(
        error.message,
        `SMTP listener mx-2 cannot listen on 127.0.0.1 port ${port}: another program uses it; stop that, or choose another port.`,
      );
      return true;
    });
  });

  it('takes a socket that listens already', async () => {
    const listening = createServer().listen(0, '127.0.0.1');
    await once(listening, 'listening');
    const { port } = listening.address() as AddressInfo;
    const { fd } = (listening as unknown as { readonly _handle: { readonly fd: number } })._handle;
    const script = fileURLToPath(new URL('activated.js', import.meta.url));
    const child = spawn(process.execPath, [script], { stdio: ['pipe', 'pipe', 'inherit', fd] });
    const { stdin, stdout } = child;
    assert.ok(stdin !== null && stdout !== null);
    await once(stdout, 'data');
    listening.close();
    const client = await SmtpClient.greeted({ port: port });
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
    stdin.end();
    assert.deepEqual(await once(child, 'exit'), [0, null]);
  });

  it('tells the health of each listener', async (test) => {
    const engine = await TestEngine.start(test);
    assert.equal(engine.health.status(), 'up');
    assert.deepEqual(
      Object.values(engine.health.components()).map(({ status }) => status),
      ['up'],
    );
  });

  it('S26 refuses sessions beyond the limits with 421, and the others go on', async (test) => {
    const limits = { clients: 5, clientsPerAddress: 2, exemptLoopback: false };
    const engine = await TestEngine.start(test, { settings: { limits } });
    const first = await engine.greeted();
    const second = await engine.greeted();
    const third = await engine.connect();
    assert.match((await third.readReply()).raw, /^421 4\.7\.0 /);
    await third.waitForEnd();
    third.close();
    assert.equal((await first.command('NOOP')).code, 250);
    first.close();
    await engine.untilLogged('closed', 2);
    const fourth = await engine.greeted();
    assert.equal((await fourth.command('NOOP')).code, 250);
    for (const client of [second, fourth]) client.close();
  });

  it('S26 loopback is outside the limit per address and inside the one for all', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { clients: 3, clientsPerAddress: 1 } } });
    const clients = [await engine.greeted(), await engine.greeted(), await engine.greeted()];
    const fourth = await engine.connect();
    assert.equal((await fourth.readReply()).code, 421);
    for (const client of [...clients, fourth]) client.close();
  });

  it('S26 two thousand idle sessions leave room for a message', async (test) => {
    const engine = await TestEngine.start(test);
    const idle = [];
    for (let n = 0; n < 2000; n += 100) {
      idle.push(...(await Promise.all(Array.from({ length: 100 }, () => engine.connect()))));
    }
    const client = await engine.greeted();
    await client.command('MAIL FROM:<>');
    await client.command('RCPT TO:<postmaster>');
    assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
    for (const one of [...idle, client]) one.close();
    await engine.untilLogged('closed', 2001);
  });

  it('a session of very many transactions is asked to come again', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { transactions: 2 } } });
    const client = await engine.greeted();
    const codes = (await client.pipeline(['MAIL FROM:<>', 'RSET', 'MAIL FROM:<>', 'RSET', 'MAIL FROM:<>'])).map(
      ({ code }) => code,
    );
    assert.deepEqual(codes, [250, 250, 250, 250, 421]);
    client.close();
  });

  it('a refusal by the stage connect takes the place of the greeting', async (test) => {
    let reply = { code: 550, status: '5.7.1', lines: ['Not from there'] };
    const engine = await TestEngine.start(test, {
      decide: (stage) => (stage === 'connect' ? Promise.resolve({ outcome: 'refuse', reply }) : undefined),
    });
    const first = await engine.connect();
    assert.equal((await first.readReply()).raw, '554 5.7.1 Not from there\r\n');
    await first.waitForEnd();
    reply = { code: 450, status: '4.7.1', lines: ['Later'] };
    const second = await engine.connect();
    assert.equal((await second.readReply()).raw, '421 4.7.1 Later\r\n');
    for (const client of [first, second]) client.close();
    assert.equal(engine.logged('refused').length, 2);
  });

  it('a 421 of any hook ends the session', async (test) => {
    const engine = await TestEngine.start(test, {
      decide: (stage) =>
        stage === 'mailFrom'
          ? { outcome: 'refuse', reply: { code: 421, status: '4.7.0', lines: ['Away with you'] } }
          : undefined,
    });
    const client = await engine.greeted();
    assert.equal((await client.command('MAIL FROM:<>')).code, 421);
    await client.waitForEnd();
    client.close();
  });

  it('text of a hook cannot break out of its reply', async (test) => {
    const engine = await TestEngine.start(test, {
      decide: (stage) =>
        stage === 'rcptTo'
          ? { outcome: 'refuse', reply: { code: 550, status: '5.7.1', lines: ['no\r\n250 yes\u0085ü'] } }
          : undefined,
    });
    const client = await engine.greeted();
    await client.command('MAIL FROM:<>');
    assert.equal((await client.command('RCPT TO:<a@localhost>')).raw, '550 5.7.1 no??250 yes??\r\n');
    client.close();
  });

  it('logs connected, accepted, rejected and closed with the id of the session', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    await client.command('RCPT TO:<unknown@localhost>');
    await client.command('RCPT TO:<anna@localhost>');
    await client.data('Subject: x\r\n\r\ny');
    await client.command('QUIT');
    await engine.untilLogged('closed');
    const lines = engine.lines.filter(({ level }) => level === 'info');
    assert.deepEqual(
      lines.map(({ message }) => message),
      ['connected', 'rejected', 'accepted', 'closed'],
    );
    assert.equal(new Set(lines.map(({ fields }) => fields['session'])).size, 1);
    const [, rejected, accepted, closed] = lines.map(({ fields }) => fields);
    assert.equal(rejected?.['recipient'], 'unknown@localhost');
    assert.equal(accepted?.['size'], 17);
    assert.equal(closed?.['commands'], 6);
    // Each command has one answer, and so has the message.
    assert.equal(closed?.['answers'], 6 + 0);
    client.close();
  });

  it('tells the watchers what was accepted, rejected and closed', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    await client.command('RCPT TO:<unknown@localhost>');
    await client.command('RCPT TO:<anna@localhost>');
    await client.data('Subject: x\r\n\r\ny');
    client.close();
    await engine.untilLogged('closed');
    assert.deepEqual(
      engine.events.map(({ event }) => event),
      ['rejected', 'accepted', 'ended', 'closed'],
    );
  });

  it('counts sessions, replies, bytes and messages by listener', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    assert.equal(await engine.count('smtp_sessions_open'), 1);
    await client.command('MAIL FROM:<a@example.org>');
    await client.command('RCPT TO:<anna@localhost>');
    await client.data('Subject: x\r\n\r\ny');
    client.close();
    await until('the end', async () => ((await engine.count('smtp_sessions_open')) === 0 ? true : undefined));
    assert.equal(await engine.count('smtp_sessions_total'), 1);
    assert.equal(await engine.count('smtp_messages_total'), 1);
    assert.equal(await engine.count('smtp_message_seconds_count'), 1);
    assert.equal(await engine.count('smtp_replies_total'), 6);
  });
});

describe('shutdown', () => {
  it('ends idle sessions with 421 at once and accepts nobody', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    const port = engine.port();
    const closing = engine.engine.close(60_000);
    assert.match((await client.readReply()).raw, /^421 4\.3\.2 /);
    await client.waitForEnd();
    client.close();
    await closing;
    await assert.rejects(engine.connect().then((late) => late.readReply()));
    assert.ok(port > 0);
  });

  it('lets a running transaction come to its 250 and then says 421', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    const closing = engine.engine.close(60_000);
    assert.equal((await client.command('RCPT TO:<anna@localhost>')).code, 250);
    assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
    assert.match((await client.readReply()).raw, /^421 4\.3\.2 /);
    client.close();
    await closing;
    assert.equal(engine.delivered.length, 1);
  });

  it('cuts a transaction that does not end in time, and nothing of it is stored', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    await client.command('RCPT TO:<anna@localhost>');
    await client.command('DATA');
    client.write('Subject: x\r\n');
    await engine.engine.close(20);
    await client.waitForEnd();
    assert.equal(engine.delivered.length, 0);
    await engine.untilSpoolIsEmpty();
    client.close();
  });

  it('never says 421 about a message that is being delivered', async (test) => {
    let release: () => void = () => undefined;
    let begun: () => void = () => undefined;
    const delivering = new Promise<void>((resolve) => (begun = resolve));
    const engine = await TestEngine.start(test, {
      deliver: () => {
        begun();
        return new Promise((resolve) => (release = () => resolve(undefined)));
      },
    });
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    await client.command('RCPT TO:<anna@localhost>');
    await client.command('DATA');
    client.write('Subject: x\r\n\r\ny\r\n.\r\n');
    await delivering;
    await engine.engine.close(20);
    await client.waitForEnd();
    assert.equal(client.unread, '');
    release();
    await engine.untilLogged('accepted');
    client.close();
  });
});

describe('reconfigure', () => {
  it('puts new limits into force for sessions that are open', async (test) => {
    const engine = await TestEngine.start(test, { clock: new TestClock() });
    const client = await engine.greeted();
    await engine.engine.reconfigure(settingsOf({ limits: { messageBytes: 5000 } }));
    assert.ok((await client.command('EHLO client.example')).lines.includes('SIZE 5000'));
    client.close();
  });
});
