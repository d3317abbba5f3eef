import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Transcript } from '../../../../core/smtp/client/channel.js';
import { selfSigned } from '../../../support/certificate.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { described, failureOf, message, open, outcomes } from './fixture.js';

test('what the server offers is read, whatever its case and order', async (t) => {
  const sink = await SmtpSink.start(t, {
    capabilities: ['size 1000', 'PipeLining', 'auth=LOGIN', 'AUTH plain', 'XCLIENT addr NAME', 'x-odd', 'SMTPUTF8'],
  });
  const { capabilities, greeting } = await open(t, sink);
  assert.equal(capabilities.size, 1000);
  assert.equal(capabilities.pipelining, true);
  assert.equal(capabilities.eightBitMime, false);
  assert.equal(capabilities.smtputf8, true);
  assert.deepEqual(capabilities.auth, ['LOGIN', 'PLAIN']);
  assert.deepEqual(capabilities.xclient, ['ADDR', 'NAME']);
  assert.equal(capabilities.keywords.has('X-ODD'), true);
  assert.equal(greeting.code, 220);
});

test('a server that refuses EHLO is greeted with HELO and offers nothing', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { ehlo: '502 5.5.1 What?' } });
  const session = await open(t, sink);
  assert.deepEqual(sink.commands, ['EHLO client.example', 'HELO client.example']);
  assert.equal(session.capabilities.pipelining, false);
  assert.deepEqual(outcomes(await session.send(message())), ['delivered']);
  assert.deepEqual(sink.messages[0]?.envelope[0], 'MAIL FROM:<anna@example.org>');
});

test('a server that shall not be asked for extensions is greeted with HELO alone', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink, { extensions: false });
  assert.deepEqual(sink.commands, ['HELO client.example']);
  assert.equal(session.capabilities.size, undefined);
});

test('a greeting or a hello that is refused says so', async (t) => {
  const cases = [
    [{ greeting: '554 5.7.1 Not you' }, 'reply greeting 554 5.7.1 permanent'],
    [{ greeting: '450 4.7.1 Not now' }, 'reply greeting 450 4.7.1 temporary'],
    [{ ehlo: '450 4.7.1 Not now' }, 'reply hello 450 4.7.1 temporary'],
    [{ ehlo: '550 No', helo: '550 5.7.1 Still no' }, 'reply hello 550 5.7.1 permanent'],
  ] as const;
  for (const [steps, expected] of cases) {
    const sink = await SmtpSink.start(t, { steps });
    assert.equal(described(await failureOf(open(t, sink))), expected);
    await sink.until(({ open: left }) => left === 0);
  }
});

test('a name that is no domain is not said', async (t) => {
  const sink = await SmtpSink.start(t);
  for (const helloName of ['', 'a b', 'a\r\nMAIL FROM:<>', 'x'.repeat(256), '<x>', '-']) {
    assert.equal(described(await failureOf(open(t, sink, { helloName }))), 'local hello 451 4.3.0 temporary');
  }
  for (const helloName of ['localhost', '[127.0.0.1]', '[IPv6:::1]', 'a_b.example']) await open(t, sink, { helloName });
  assert.equal(sink.connections, 4);
});

test('a message is not sent to a server that cannot take it', async (t) => {
  const eight = Buffer.from('Grüße\r\n');
  const cases = [
    [['SMTPUTF8'], { content: { source: eight } }, 'capability mail 554 5.6.3 permanent'],
    [[], { content: { source: () => [eight] as never, eightBit: true } }, 'capability mail 554 5.6.3 permanent'],
    [['8BITMIME'], { sender: { address: 'jürgen@example.org' } }, 'capability mail 550 5.6.7 permanent'],
    [['8BITMIME'], { to: ['jürgen@example.org'] }, 'capability rcpt 550 5.6.7 permanent'],
    [['8BITMIME'], { content: { source: eight, internationalHeader: true } }, 'capability mail 554 5.6.9 permanent'],
    [['8BITMIME', 'SIZE 3'], { content: { source: eight } }, 'capability mail 552 5.3.4 permanent'],
  ] as const;
  for (const [capabilities, given, expected] of cases) {
    const sink = await SmtpSink.start(t, { capabilities });
    const session = await open(t, sink);
    assert.deepEqual(outcomes(await session.send(message(given))), [expected]);
    assert.equal(sink.commands.length, 1);
    assert.equal(session.reusable, true);
  }
});

test('8-bit text that shows itself on the way ends the connection in front of the dot', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities: [] });
  const session = await open(t, sink);
  async function* source() {
    yield Buffer.from('plain\r\n');
    await Promise.resolve();
    yield Buffer.from('Grüße\r\n');
  }
  assert.deepEqual(outcomes(await session.send(message({ content: { source } }))), [
    'capability body 554 5.6.3 permanent',
  ]);
  await sink.until(({ open: left }) => left === 0);
  assert.equal(sink.messages.length, 0);
});

test('a server without a limit, or with room, takes the message; one international recipient fails alone', async (t) => {
  for (const size of ['SIZE', 'SIZE 0', 'SIZE 1000', 'SIZE lots']) {
    const sink = await SmtpSink.start(t, { capabilities: [size, '8BITMIME'] });
    const session = await open(t, sink);
    const result = await session.send(message({ to: ['ben@example.com', 'jürgen@example.org'] }));
    assert.deepEqual(outcomes(result), ['delivered', 'capability rcpt 550 5.6.7 permanent']);
  }
  const sink = await SmtpSink.start(t);
  await (await open(t, sink)).send(message({ to: ['jürgen@example.org'] }));
  assert.match(sink.messages[0]?.envelope[0] ?? '', / SMTPUTF8$/);
  assert.equal(sink.messages[0]?.envelope[1], 'RCPT TO:<jürgen@example.org>');
});

test('XCLIENT names the attributes of the client that the server offers to take', async (t) => {
  const identity = { ADDR: '::ffff:192.0.2.9', PORT: 25, NAME: 'a+b c', HELO: 'x', LOGIN: 'anna' };
  const sink = await SmtpSink.start(t, { capabilities: ['XCLIENT ADDR NAME HELO'] });
  await open(t, sink, {}, { identity });
  await open(t, sink, {}, { identity: { ADDR: '2001:db8::1' } });
  assert.deepEqual(sink.commands, [
    'EHLO client.example',
    'XCLIENT ADDR=192.0.2.9 NAME=a+2Bb+20c HELO=x',
    'EHLO client.example',
    'EHLO client.example',
    'XCLIENT ADDR=IPV6:2001:db8::1',
    'EHLO client.example',
  ]);
  const silent = await SmtpSink.start(t);
  await open(t, silent, {}, { identity });
  assert.deepEqual(silent.commands, ['EHLO client.example']);
});

test('the transcript holds every step, and no credentials', async (t) => {
  const tls = selfSigned('localhost');
  const auth = { username: 'anna', password: 'very-secret' };
  const sink = await SmtpSink.start(t, { tls, auth, steps: { rcpt: [undefined, '550 5.1.1 Nobody\u0007'] } });
  const transcript = new Transcript();
  const destination = { tls: { mode: 'require', verify: false }, auth } as const;
  const session = await open(t, sink, destination, { transcript });
  await session.send(message({ to: ['a@example.com', 'b@example.com'] }));
  await session.quit();
  assert.deepEqual(
    transcript.entries.map(({ command }) => command),
    ['', 'EHLO', 'STARTTLS', 'EHLO', 'AUTH', 'MAIL', 'RCPT', 'RCPT', 'DATA', '.', 'QUIT'],
  );
  const text = JSON.stringify(transcript.entries);
  assert.ok(!text.includes('very-secret') && !text.includes(Buffer.from('\0anna\0very-secret').toString('base64')));
  assert.equal(transcript.entries[7]?.response, '550 5.1.1 Nobody?');
  assert.ok(transcript.entries.every(({ ms, error }) => ms >= 0 && error === undefined));
});

test('the transcript tells where it went wrong', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { mail: { raw: 'garbage\r\n' } } });
  const transcript = new Transcript(4);
  const session = await open(t, sink, {}, { transcript });
  await session.send(message());
  const last = transcript.entries.at(-1);
  assert.equal(last?.command, 'MAIL');
  assert.match(last.error ?? '', /garbage/);
  const { port } = sink;
  await sink.close();
  const nobody = new Transcript();
  await failureOf(open(t, { port } as SmtpSink, {}, { transcript: nobody }));
  assert.deepEqual(
    nobody.entries.map(({ step, error }) => [step, error]),
    [['connect', 'Connection refused']],
  );
});

test('steps out of turn are refused here, and steps one by one send a message', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { rcpt: ['550 5.1.1 Nobody'] } });
  const session = await open(t, sink);
  await assert.rejects(session.rcpt({ address: 'a@example.com' }), { kind: 'local', step: 'rcpt' });
  await assert.rejects(session.mail({ address: 'a@b>\r\nDATA' }), { kind: 'local', step: 'mail' });
  assert.equal((await session.mail({ address: null }, { size: 3 })).code, 250);
  assert.equal(session.reusable, false);
  assert.equal((await session.rcpt({ address: 'a@example.com' })).code, 550);
  assert.equal((await session.rset()).code, 250);
  assert.equal(session.reusable, true);
  assert.equal((await session.noop()).code, 250);
  sink.script = {};
  await session.mail({ address: 'anna@example.org' });
  await session.rcpt({ address: 'ben@example.com' });
  await assert.rejects(session.body({ source: Buffer.from('x') }), { kind: 'local', step: 'body' });
  assert.equal((await session.data()).code, 354);
  await assert.rejects(session.rset(), { kind: 'local', step: 'rset' });
  const [reply] = await session.body({ source: Buffer.from('x\r\n') });
  assert.deepEqual(reply, { code: 250, status: '2.0.0', lines: ['Sunk'] });
  assert.equal(session.reusable, true);
  await session.quit();
  await assert.rejects(session.noop());
});

describe('MAIL with the first RCPT', () => {
  const sender = { address: 'anna@example.org' };
  const recipient = { address: 'ben@example.net' };

  test('goes out in one, and each has its answer', async (t) => {
    // A server that answered twice to one command would be given up.
    const mail = { raw: '250 2.1.0 Anna\r\n550 5.1.1 No Ben\r\n' };
    const session = await open(t, await SmtpSink.start(t, { steps: { mail, rcpt: { silent: true } } }));
    const answers = await session.mailWithRcpt(sender, recipient);
    assert.deepEqual([answers.mail.status, answers.rcpt?.status], ['2.1.0', '5.1.1']);
  });

  test('is followed by the message', async (t) => {
    const sink = await SmtpSink.start(t);
    const session = await open(t, sink);
    await session.mailWithRcpt(sender, recipient);
    assert.equal((await session.data()).code, 354);
    await session.body({ source: Buffer.from('x\r\n') });
    assert.deepEqual(sink.messages[0]?.recipients, ['ben@example.net']);
    assert.equal(session.reusable, true);
  });

  test('leaves RCPT to be said where there is no pipelining', async (t) => {
    const sink = await SmtpSink.start(t, { capabilities: ['8BITMIME'] });
    const session = await open(t, sink);
    assert.deepEqual((await session.mailWithRcpt(sender, recipient)).rcpt, undefined);
    assert.equal((await session.rcpt(recipient)).code, 250);
  });

  test('leaves RCPT to be said when he cannot be named to this server', async (t) => {
    const session = await open(t, await SmtpSink.start(t, { capabilities: ['PIPELINING'] }));
    const international = { address: 'bjørn@example.net' };
    assert.equal((await session.mailWithRcpt(sender, international)).rcpt, undefined);
    await assert.rejects(session.rcpt(international), { kind: 'capability' });
  });

  test('is to be forgotten when MAIL was refused, and the connection serves on', async (t) => {
    const sink = await SmtpSink.start(t, { steps: { mail: ['550 5.7.1 No Anna', undefined] } });
    const session = await open(t, sink);
    assert.equal((await session.mailWithRcpt(sender, recipient)).mail.code, 550);
    assert.equal(session.reusable, false);
    assert.equal((await session.rset()).code, 250);
    assert.equal((await session.mailWithRcpt(sender, recipient)).rcpt?.code === 250, true);
  });

  test('rejects when the server leaves at MAIL, and tells when it leaves at RCPT', async (t) => {
    const leaving = await open(t, await SmtpSink.start(t, { steps: { mail: { close: '' } } }));
    await assert.rejects(leaving.mailWithRcpt(sender, recipient), { kind: 'closed', step: 'mail' });
    const later = await open(t, await SmtpSink.start(t, { steps: { rcpt: { close: '' } } }));
    const { mail, rcpt } = await later.mailWithRcpt(sender, recipient);
    assert.deepEqual([mail.code, rcpt instanceof Error], [250, true]);
    assert.equal(later.failure?.kind, 'closed');
  });
});
