import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { systemClock } from '../../../../core/clock.js';
import { isStartError } from '../../../../core/problem.js';
import { SmtpOptions } from '../../../../core/smtp/server/listeners.js';
import { selfSigned } from '../../../support/certificate.js';
import { HandClock } from '../../../support/hand-clock.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { settingsOf, TestClock, TestEngine } from './test-engine.js';

const pair = selfSigned('mx.test');
const starttls = { port: 0, tls: 'starttls' as const, ...pair };
const implicit = { port: 0, tls: 'implicit' as const, ...pair };

/** Resolves when the socket has closed, be it with an error. */
function closed(socket: Socket): Promise<void> {
  socket.on('error', () => undefined);
  socket.resume();
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

describe('the certificate of a listener', () => {
  it('degrades health in the last part of its life, and once it is over', async (test) => {
    const clock = new HandClock(systemClock.now());
    const engine = await TestEngine.start(test, { settings: { listeners: [{ ...starttls, name: 'mx' }] }, clock });
    const health = () => engine.health.components()['listener mx'];
    assert.deepEqual([health()?.status, health()?.figures?.['certificateDays']], ['up', 0]);
    clock.advance(45 * 60);
    assert.match(health()?.why ?? '', /^Its certificate expires on \d{4}-\d\d-\d\d: renew it, then reload\.$/);
    clock.advance(20 * 60);
    assert.equal(health()?.status, 'degraded');
    assert.match(health()?.why ?? '', /^Its certificate expired on/);
    assert.equal(health()?.figures?.['certificateDays'], -1);
  });
});

describe('session tickets', () => {
  const hours = 12 * 60 * 60 * 1000;

  /** One session over implicit TLS: whether it was resumed, and the last ticket that it got. */
  async function session(port: number, ticket?: Buffer): Promise<{ resumed: boolean; ticket: Buffer | undefined }> {
    const client = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, session: ticket });
    let received: Buffer | undefined;
    client.on('session', (bytes: Buffer) => (received = bytes));
    await once(client, 'data');
    const resumed = client.isSessionReused();
    client.end('QUIT\r\n');
    await closed(client);
    return { resumed, ticket: received };
  }

  it('of one listener are good at the others, until the keys are replaced', async (test) => {
    test.mock.timers.enable({ apis: ['setInterval'] });
    const settings = { listeners: [implicit, implicit] };
    const engine = await TestEngine.start(test, { settings, sweepMs: hours });
    const { ticket } = await session(engine.port(0));
    assert.equal((await session(engine.port(1), ticket)).resumed, true);
    test.mock.timers.tick(hours);
    const next = await session(engine.port(0), ticket);
    assert.equal(next.resumed, false, 'a full handshake');
    assert.equal((await session(engine.port(1), next.ticket)).resumed, true);
  });

  it('are good after the certificate was replaced', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [implicit] } });
    const { ticket } = await session(engine.port());
    await engine.engine.reconfigure(settingsOf({ listeners: [{ ...implicit, ...selfSigned('mx.test') }] }));
    assert.equal((await session(engine.port(), ticket)).resumed, true);
  });
});

describe('STARTTLS', () => {
  it('S17 upgrades the session and forgets what was said before', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [starttls] } });
    const client = await engine.greeted();
    assert.match((await client.command('STARTTLS now')).raw, /^501 /);
    await client.command('MAIL FROM:<a@example.org>');
    assert.match((await client.command('STARTTLS')).raw, /^503 /);
    await client.command('RSET');
    assert.equal((await client.command('STARTTLS')).code, 220);
    await client.startTls();
    assert.match((await client.command('MAIL FROM:<a@example.org>')).raw, /^503 5\.5\.1 /);
    await client.command('EHLO client.example');
    assert.equal((await client.command('STARTTLS')).code, 503);
    await client.command('MAIL FROM:<a@example.org>');
    await client.command('RCPT TO:<anna@localhost>');
    assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
    assert.match(engine.delivered[0]?.file ?? '', /with ESMTPS id/);
    assert.equal(engine.delivered[0]?.transaction.session.tls?.protocol, 'TLSv1.3');
    assert.equal(await engine.count('smtp_tls_sessions_total'), 1);
    client.close();
  });

  it('is not offered and not known without a key', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.connect();
    await client.readReply();
    assert.ok(!(await client.command('EHLO client.example')).lines.includes('STARTTLS'));
    assert.equal((await client.command('STARTTLS')).code, 502);
    client.close();
  });

  const injected = {
    'a command': 'STARTTLS\r\nMAIL FROM:<evil@example.org>\r\n',
    'part of a command': 'STARTTLS\r\nMAIL FROM:<evil',
    '3,000 lines': `STARTTLS\r\n${'NOOP\r\n'.repeat(3000)}`,
  };
  for (const [name, bytes] of Object.entries(injected)) {
    it(`S17 ${name} in the packet of STARTTLS is not a command of the TLS session`, async (test) => {
      const engine = await TestEngine.start(test, { settings: { listeners: [starttls] } });
      const client = await engine.greeted();
      client.write(bytes);
      assert.equal((await client.readReply()).code, 220);
      await client.startTls();
      assert.equal((await client.command('EHLO client.example')).lines[0], 'mx.test');
      assert.equal((await client.command('RCPT TO:<anna@localhost>')).code, 503);
      assert.equal(client.unread, '');
      client.close();
    });
  }

  it('S17 junk and resets in place of a hello leave the server alive', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [starttls] } });
    for (const leave of ['junk', 'reset'] as const) {
      const client = await engine.greeted();
      await client.command('STARTTLS');
      if (leave === 'junk') client.write('EHLO plain.example\r\n'.repeat(100));
      else client.reset();
      await client.waitForEnd();
      client.close();
    }
    await engine.untilLogged('closed', 2);
    const next = await engine.greeted();
    assert.equal((await next.command('NOOP')).code, 250);
    next.close();
  });

  it('S24 a handshake that does not come is cut', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, { settings: { listeners: [starttls] }, clock });
    const client = await engine.greeted();
    await client.command('STARTTLS');
    clock.advance(31);
    await client.waitForEnd();
    await engine.untilLogged('closed');
    client.close();
  });
});

describe('implicit TLS', () => {
  it('greets within TLS', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [implicit] } });
    const client = await SmtpClient.connect({ port: engine.port(), tls: true });
    assert.equal((await client.readReply()).code, 220);
    const capabilities = await client.command('EHLO client.example');
    assert.ok(!capabilities.lines.includes('STARTTLS'));
    await client.command('MAIL FROM:<>');
    await client.command('RCPT TO:<postmaster>');
    assert.equal((await client.data('')).code, 250);
    client.close();
  });

  it('a half-closed TLS client gets its reply', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [implicit] } });
    const client = await SmtpClient.greeted({ port: engine.port(), tls: true });
    await client.command('MAIL FROM:<>');
    await client.command('RCPT TO:<postmaster>');
    await client.command('DATA');
    client.write('Subject: x\r\n\r\n.\r\n');
    client.halfClose();
    assert.equal((await client.readReply()).code, 250);
    client.close();
  });

  it('refuses TLS below 1.2', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [implicit] } });
    const socket = connectTls({
      port: engine.port(),
      host: '127.0.0.1',
      rejectUnauthorized: false,
      minVersion: 'TLSv1',
      maxVersion: 'TLSv1.1',
      ciphers: 'DEFAULT@SECLEVEL=0',
    });
    const [error] = (await once(socket, 'error')) as [Error];
    assert.ok(error);
  });

  it('S24 a hello that drips is cut, and junk does no harm', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, { settings: { listeners: [implicit] }, clock, sweepMs: 5 });
    const dripping = connect({ port: engine.port(), host: '127.0.0.1' });
    const dripped = closed(dripping);
    const drip = setInterval(() => {
      clock.advance(10);
      dripping.write(Buffer.from([0x16]));
    }, 20);
    test.after(() => clearInterval(drip));
    await dripped;
    const junk = connect({ port: engine.port(), host: '127.0.0.1' });
    junk.write('EHLO plain.example\r\n');
    await closed(junk);
    const client = await SmtpClient.greeted({ port: engine.port(), tls: true });
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  });
});

describe('key and certificate', () => {
  const other = selfSigned('other.test');
  const refused: Readonly<Record<string, readonly [object, RegExp]>> = {
    'a key of another certificate': [{ key: other.key, cert: pair.cert }, /do not belong together/],
    'a file that is not there': [
      { key: '/nowhere/key.pem', cert: pair.cert },
      /key file \/nowhere\/key\.pem cannot be read/,
    ],
    'a certificate for a key': [{ key: pair.cert, cert: pair.cert }, /key is not a private key/],
    'a key for a certificate': [{ key: pair.key, cert: pair.key }, /cert is not a certificate/],
    'a broken certificate': [
      { key: pair.key, cert: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n' },
      /cert is not a certificate/,
    ],
  };
  for (const [name, [material, sentence]] of Object.entries(refused)) {
    it(`${name} stops the start with a sentence`, async (test) => {
      const settings = { listeners: [{ ...implicit, ...material }] };
      await assert.rejects(TestEngine.start(test, { settings }), (error: Error) => {
        assert.ok(isStartError(error));
        assert.match(error.message, sentence);
        assert.match(error.message, /^SMTP listener mx: .*\.$/);
        return true;
      });
    });
  }

  it('a key without its certificate is a complaint about the configuration', () => {
    for (const tls of ['starttls', 'implicit']) {
      const { success, error } = SmtpOptions.safeParse({ listeners: [{ tls, key: 'k' }] });
      assert.equal(success, false);
      assert.match(error?.issues[0]?.message ?? '', /^key and cert belong together/);
    }
  });

  it('are read from files, and anew by reconfigure', async (test) => {
    const folder = await temporaryFolder(test);
    const files = { key: join(folder, 'key.pem'), cert: join(folder, 'cert.pem') };
    await writeFile(files.key, pair.key);
    await writeFile(files.cert, pair.cert);
    const settings = { listeners: [{ ...implicit, ...files }] };
    const engine = await TestEngine.start(test, { settings });
    const nameOf = async (): Promise<string | undefined> => {
      const client = await SmtpClient.greeted({ port: engine.port(), tls: true });
      const { subject } = (client.socket as TLSSocket).getPeerCertificate();
      client.close();
      return String(subject.CN);
    };
    assert.equal(await nameOf(), 'mx.test');
    await writeFile(files.key, other.key);
    await assert.rejects(engine.engine.reconfigure(settingsOf(settings)), /do not belong together/);
    assert.equal(await nameOf(), 'mx.test');
    await writeFile(files.cert, other.cert);
    await engine.engine.reconfigure(settingsOf(settings));
    assert.equal(await nameOf(), 'other.test');
  });
});
