import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { describe, test } from 'node:test';
import { parseProxyHeader } from '../../../../core/smtp/server/proxy-header.js';
import { selfSigned } from '../../../support/certificate.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { TestEngine } from './test-engine.js';

const magic = '0d0a0d0a000d0a515549540a';
const binary = (hex: string): Buffer => Buffer.from(magic + hex.replaceAll(' ', ''), 'hex');
const ipv4 = 'cb007109 c0000219 d431 0019';
const ipv6 = '20010db8000000000000000000000009 20010db8000000000000000000000001 d431 0019';
const source = { address: '203.0.113.9', port: 54_321 };
const source6 = { address: '2001:db8::9', port: 54_321 };

const valid = {
  'version 1, IPv4': [Buffer.from('PROXY TCP4 203.0.113.9 192.0.2.25 54321 25\r\n'), source],
  'version 1, IPv6': [Buffer.from('PROXY TCP6 2001:DB8:0::9 2001:db8::1 54321 25\r\n'), source6],
  'version 1, a mapped address': [Buffer.from('PROXY TCP6 ::ffff:203.0.113.9 ::1 54321 25\r\n'), source],
  'version 1, of the proxy itself': [Buffer.from('PROXY UNKNOWN\r\n'), undefined],
  'version 1, unknown addresses': [Buffer.from('PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n'), undefined],
  'version 2, IPv4': [binary(`21 11 000c ${ipv4}`), source],
  'version 2, IPv6': [binary(`21 21 0024 ${ipv6}`), source6],
  'version 2, with more behind the addresses': [binary(`21 11 0013 ${ipv4} 04 0004 00000000`), source],
  'version 2, of the proxy itself': [binary('20 00 0000'), undefined],
  'version 2, LOCAL with addresses': [binary(`20 11 000c ${ipv4}`), undefined],
  'version 2, a Unix socket': [binary(`21 31 00d8 ${'00'.repeat(216)}`), undefined],
} as const;

const invalid = {
  'a command': Buffer.from('EHLO client.example\r\n'),
  'lower case': Buffer.from('proxy TCP4 203.0.113.9 192.0.2.25 54321 25\r\n'),
  'no addresses': Buffer.from('PROXY TCP4\r\n'),
  'an address of the other family': Buffer.from('PROXY TCP4 2001:db8::9 192.0.2.25 54321 25\r\n'),
  'a name': Buffer.from('PROXY TCP4 host.example 192.0.2.25 54321 25\r\n'),
  'a zone': Buffer.from('PROXY TCP6 fe80::1%eth0 ::1 54321 25\r\n'),
  'a port that is too high': Buffer.from('PROXY TCP4 203.0.113.9 192.0.2.25 65536 25\r\n'),
  'one word more': Buffer.from('PROXY TCP4 203.0.113.9 192.0.2.25 54321 25 26\r\n'),
  'two blanks': Buffer.from('PROXY TCP4  203.0.113.9 192.0.2.25 54321 25\r\n'),
  'a line without end': Buffer.from(`PROXY UNKNOWN ${'x'.repeat(100)}`),
  'version 3': binary(`31 11 000c ${ipv4}`),
  'an unknown command': binary(`22 11 000c ${ipv4}`),
  UDP: binary(`21 12 000c ${ipv4}`),
  'cut addresses': binary('21 11 0004 cb007109'),
  '65,535 bytes announced': binary('21 11 ffff'),
};

describe('a PROXY header', () => {
  for (const [name, [bytes, expected]] of Object.entries(valid)) {
    test(`is read: ${name}`, () => {
      const whole = Buffer.concat([bytes, Buffer.from('220')]);
      const header = parseProxyHeader(whole);
      assert.ok(header.form === 'valid', JSON.stringify(header));
      assert.equal(header.length, bytes.length);
      assert.deepEqual(header.source, expected);
      for (let length = 0; length < bytes.length; length += 1) {
        assert.equal(parseProxyHeader(bytes.subarray(0, length)).form, 'incomplete', `${length} bytes`);
      }
    });
  }

  for (const [name, bytes] of Object.entries(invalid)) {
    test(`is refused: ${name}`, () => assert.equal(parseProxyHeader(bytes).form, 'invalid'));
  }
});

const pair = selfSigned('mx.test');
const behindProxy = { port: 0, proxyProtocol: ['127.0.0.1'] };
const [[text], [withIPv6]] = [valid['version 1, IPv4'], valid['version 2, IPv6']];

async function open(port: number, localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, localAddress });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** True when the server closes without a word. */
async function isClosed(socket: Socket): Promise<boolean> {
  let said = false;
  socket.on('data', () => (said = true));
  await once(socket, 'close', { signal: AbortSignal.timeout(20_000) });
  return !said;
}

async function send(client: SmtpClient): Promise<void> {
  assert.equal((await client.readReply()).code, 220);
  await client.command('EHLO client.example');
  await client.command('MAIL FROM:<a@example.org>');
  await client.command('RCPT TO:<anna@localhost>');
  assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
}

describe('a listener with proxyProtocol', () => {
  test('takes the client from the header, in pieces too', async (t) => {
    const engine = await TestEngine.start(t, { settings: { listeners: [behindProxy] } });
    for (const pieces of [[text], [withIPv6], [withIPv6.subarray(0, 5), withIPv6.subarray(5)]]) {
      const socket = await open(engine.port());
      for (const piece of pieces) {
        socket.write(piece);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await send(new SmtpClient(socket));
      socket.destroy();
    }
    const remotes = engine.delivered.map(({ transaction }) => transaction.session.remote);
    assert.deepEqual(remotes, [source, source6, source6]);
    assert.match(engine.delivered[0]?.file ?? '', /\[203\.0\.113\.9\]/);
  });

  test('starts TLS after the PROXY header, even in one segment', async (t) => {
    const settings = { listeners: [{ ...behindProxy, tls: 'implicit' as const, ...pair }] };
    const engine = await TestEngine.start(t, { settings });
    for (const waits of [true, false]) {
      const socket = await open(engine.port());
      socket.cork();
      socket.write(withIPv6);
      if (waits) {
        socket.uncork();
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      const secure = connectTls({ socket, rejectUnauthorized: false });
      if (!waits) setImmediate(() => socket.uncork());
      await send(new SmtpClient(secure));
      secure.destroy();
    }
    assert.deepEqual(
      engine.delivered.map(({ transaction }) => transaction.session.remote),
      [source6, source6],
    );
    assert.equal(engine.delivered[0]?.transaction.session.tls?.protocol, 'TLSv1.3');
  });

  test('counts connections by client, and takes the proxy itself where it speaks for itself', async (t) => {
    const settings = { listeners: [behindProxy], limits: { clientsPerAddress: 1, exemptLoopback: false } };
    const engine = await TestEngine.start(t, { settings });
    const replies: number[] = [];
    for (const header of [text, text, withIPv6, valid['version 2, of the proxy itself'][0]]) {
      const socket = await open(engine.port());
      socket.write(header);
      replies.push((await new SmtpClient(socket).readReply()).code);
      t.after(() => socket.destroy());
    }
    assert.deepEqual(replies, [220, 421, 220, 220]);
  });

  test('S34 closes a proxy without a valid header, and takes the words of others for commands', async (t) => {
    const engine = await TestEngine.start(t, { settings: { listeners: [behindProxy] } });
    for (const bytes of [invalid['a command'], invalid['version 3'], invalid['a line without end']]) {
      const socket = await open(engine.port());
      socket.write(bytes);
      assert.equal(await isClosed(socket), true);
    }
    const ended = await open(engine.port());
    ended.end('PROXY TCP4 203');
    assert.equal(await isClosed(ended), true);
    const stranger = await SmtpClient.connect({ port: engine.port(), localAddress: '127.0.0.2' });
    await stranger.readReply();
    assert.equal((await stranger.command(text.toString().trim())).code, 500);
    stranger.close();
    assert.equal(engine.lines.filter(({ message }) => message === 'a connection of a proxy was closed').length, 4);
  });

  test('S24 closes a proxy that trickles its header', async (t) => {
    const engine = await TestEngine.start(t, { settings: { listeners: [behindProxy] } });
    const socket = await open(engine.port());
    const bytes = [...text];
    const timer = setInterval(() => socket.write(Buffer.from([bytes.shift() ?? 0])), 500);
    t.after(() => clearInterval(timer));
    assert.equal(await isClosed(socket), true);
    assert.ok(bytes.length > 0);
  });
});
