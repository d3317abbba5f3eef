import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { message, open, outcomes, text } from './fixture.js';

const plainCapabilities = ['8BITMIME', 'SIZE 52428800'];

test('a message arrives with its envelope and its text as they are', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  const result = await session.send(message({ to: ['ben@example.com', 'cleo@example.com'] }));
  assert.deepEqual(outcomes(result), ['delivered', 'delivered']);
  assert.equal(result.failure, undefined);
  assert.equal(result.bytes, text.length);
  const [sunk] = sink.messages;
  assert.equal(sunk?.sender, 'anna@example.org');
  assert.deepEqual(sunk.recipients, ['ben@example.com', 'cleo@example.com']);
  assert.equal(sunk.text.toString(), text);
  assert.equal(sunk.envelope[0], `MAIL FROM:<anna@example.org> SIZE=${text.length} BODY=8BITMIME`);
});

test('a session takes message after message', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  for (let sent = 1; sent <= 3; sent += 1) {
    assert.equal((await session.send(message())).failure, undefined);
    assert.equal(session.messages, sent);
    assert.equal(session.reusable, true);
  }
  assert.equal(sink.connections, 1);
  assert.equal(sink.messages.length, 3);
});

test('a server without PIPELINING gets one command at a time', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities: plainCapabilities, steps: { mail: '450 4.3.0 Later' } });
  const session = await open(t, sink);
  await session.send(message());
  await session.quit();
  assert.deepEqual(
    sink.commands.map((line) => line.split(' ', 1)[0]),
    ['EHLO', 'MAIL', 'QUIT'],
  );
});

test('a server with PIPELINING gets the envelope and DATA in one piece', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  const before = sink.commands.length;
  const sending = session.send(message({ to: ['ben@example.com', 'cleo@example.com'] }));
  await sink.until(({ commands }) => commands.length >= before + 4);
  assert.deepEqual(
    sink.commands.slice(before).map((line) => line.split(' ', 1)[0]),
    ['MAIL', 'RCPT', 'RCPT', 'DATA'],
  );
  assert.equal((await sending).failure, undefined);
});

test('dots are stuffed and lone CRs and LFs made CRLFs, however the stream is cut', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  const source = '.first\r\n..second\r\n.\r\nthird\nfourth\rfifth\r\r\n\n.\n';
  const expected = '.first\r\n..second\r\n.\r\nthird\r\nfourth\r\nfifth\r\n\r\n\r\n.\r\n';
  const cuts = [[source], source.split(''), ['.', ...(source.slice(1).match(/.{1,3}/gs) ?? [])]];
  for (const pieces of cuts) {
    const stream = () => Readable.from(pieces.map((piece) => Buffer.from(piece)));
    const result = await session.send(message({ content: { source: stream } }));
    assert.deepEqual(outcomes(result), ['delivered']);
  }
  assert.deepEqual(await session.send(message({ content: { source: Buffer.from(source) } })).then(outcomes), [
    'delivered',
  ]);
  for (const sunk of sink.messages) assert.equal(sunk.text.toString(), expected);
  assert.equal(sink.messages.length, 4);
});

test('a text without a line end at its end gets one, and an empty text stays empty', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  for (const source of ['no end', 'half an end\r', '']) {
    assert.deepEqual(outcomes(await session.send(message({ content: { source: Buffer.from(source) } }))), [
      'delivered',
    ]);
  }
  assert.deepEqual(
    sink.messages.map((sunk) => sunk.text.toString()),
    ['no end\r\n', 'half an end\r\n', ''],
  );
});

test('a message of many megabytes goes through as a buffer and as a stream', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  const line = `${'0123456789'.repeat(7)}\r\n`;
  const whole = Buffer.from(line.repeat(70_000));
  assert.equal((await session.send(message({ content: { source: whole } }))).failure, undefined);
  const stream = () => Readable.from([whole.subarray(0, 1_000_000), whole.subarray(1_000_000)]);
  const result = await session.send(message({ content: { source: stream, size: whole.length } }));
  assert.equal(result.bytes, whole.length);
  for (const sunk of sink.messages) assert.ok(sunk.text.equals(whole));
  assert.equal(sink.messages.length, 2);
});

test('each recipient keeps its own refusal, and the others get the message', async (t) => {
  for (const capabilities of [plainCapabilities, [...plainCapabilities, 'PIPELINING']]) {
    const sink = await SmtpSink.start(t, {
      capabilities,
      steps: { rcpt: ['450 4.2.0 Later', undefined, '550 5.1.1 Nobody', '552 Too many', '552 5.2.2 Full'] },
    });
    const session = await open(t, sink);
    const to = ['a', 'b', 'c', 'd', 'e'].map((local) => `${local}@example.com`);
    const settled: number[] = [];
    const result = await session.send(message({ to }), { settled: (index) => settled.push(index) });
    assert.deepEqual(outcomes(result), [
      'reply rcpt 450 4.2.0 temporary',
      'delivered',
      'reply rcpt 550 5.1.1 permanent',
      'reply rcpt 552 5.0.0 temporary',
      'reply rcpt 552 5.2.2 permanent',
    ]);
    assert.equal(result.failure, undefined);
    assert.deepEqual(settled, [0, 2, 3, 4, 1]);
    assert.deepEqual(sink.messages[0]?.recipients, ['b@example.com']);
    assert.equal(session.reusable, true);
  }
});

test('when every recipient is refused no text is sent', async (t) => {
  for (const capabilities of [plainCapabilities, [...plainCapabilities, 'PIPELINING']]) {
    const sink = await SmtpSink.start(t, { capabilities, steps: { rcpt: ['450 4.2.0 Later', '550 5.1.1 Nobody'] } });
    const session = await open(t, sink);
    const result = await session.send(message({ to: ['a@example.com', 'b@example.com'] }));
    assert.deepEqual(outcomes(result), ['reply rcpt 450 4.2.0 temporary', 'reply rcpt 550 5.1.1 permanent']);
    assert.equal(result.failure, undefined);
    assert.equal(session.reusable, false);
    await session.quit();
    assert.equal(sink.messages.length, 0);
  }
});

test('a server that wants the text of a message without recipients gets none, not even a dot', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { rcpt: '550 5.1.1 Nobody', data: '354 Go ahead' } });
  const session = await open(t, sink);
  assert.deepEqual(outcomes(await session.send(message())), ['reply rcpt 550 5.1.1 permanent']);
  await sink.until(({ open: left }) => left === 0);
  assert.equal(sink.messages.length, 0);
});

test('what is refused at MAIL, DATA or the dot is refused to all', async (t) => {
  const cases = [
    [{ mail: '451 4.3.0 Not now' }, 'reply mail 451 4.3.0 temporary'],
    [{ mail: '550 5.7.1 Not you' }, 'reply mail 550 5.7.1 permanent'],
    [{ data: '451 Disk' }, 'reply data 451 4.0.0 temporary'],
    [{ data: '554 5.5.1 No' }, 'reply data 554 5.5.1 permanent'],
    [{ dot: '452 4.3.1 Full' }, 'reply final 452 4.3.1 temporary'],
    [{ dot: '554 5.7.1 Spam' }, 'reply final 554 5.7.1 permanent'],
  ] as const;
  for (const [steps, expected] of cases) {
    const sink = await SmtpSink.start(t, { steps });
    const session = await open(t, sink);
    const result = await session.send(message({ to: ['a@example.com', 'b@example.com'] }));
    assert.deepEqual(outcomes(result), [expected, expected]);
    assert.equal(result.failure?.reply?.code, result.failure?.code);
    assert.equal(session.reusable, false);
    assert.deepEqual(outcomes(await session.send(message())), ['local mail 451 4.3.0 temporary']);
  }
});

test('DSN parameters go where DSN is offered, and nowhere else', async (t) => {
  const given = message({
    sender: { address: null, ret: 'HDRS', envid: 'QQ+314=x y', parameters: ['X-ONE', 'X-TWO=2'] },
    recipients: [{ address: 'ben@example.com', notify: ['FAILURE', 'DELAY'], orcpt: 'rfc822;bën+x@example.com' }],
    content: { source: () => Readable.from([Buffer.from(text)]), eightBit: false },
  });
  const offering = await SmtpSink.start(t, { capabilities: ['DSN', 'SIZE'] });
  await (await open(t, offering)).send(given);
  assert.deepEqual(offering.messages[0]?.envelope, [
    'MAIL FROM:<> RET=HDRS ENVID=QQ+2B314+3Dx+20y X-ONE X-TWO=2',
    'RCPT TO:<ben@example.com> NOTIFY=FAILURE,DELAY ORCPT=rfc822;b+C3+ABn+2Bx@example.com',
  ]);
  const other = await SmtpSink.start(t, { capabilities: [] });
  await (await open(t, other)).send(given);
  assert.deepEqual(other.messages[0]?.envelope, ['MAIL FROM:<> X-ONE X-TWO=2', 'RCPT TO:<ben@example.com>']);
});

test('an address or a parameter that would break its line never reaches the wire', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  const before = sink.commands.length;
  for (const address of [
    'r@b>\r\nRCPT TO:<evil@b',
    'a@b> NOTIFY=NEVER',
    'a b@c',
    'a@b\n',
    '<a@b>',
    '',
    'a',
    '@b',
    'a@b\0',
  ]) {
    const result = await session.send(message({ to: [address] }));
    assert.deepEqual(outcomes(result), ['local rcpt 451 4.3.0 temporary'], JSON.stringify(address));
    const from = await session.send(message({ sender: { address: address === '' ? ' ' : address } }));
    assert.deepEqual(outcomes(from), ['local mail 451 4.3.0 temporary'], JSON.stringify(address));
  }
  for (const parameter of ['A B', 'A=\r\nRSET', '=x', 'A=b=c', '']) {
    const sender = { address: 'anna@example.org', parameters: [parameter] };
    assert.deepEqual(outcomes(await session.send(message({ sender }))), ['local mail 451 4.3.0 temporary']);
    const recipients = [{ address: 'ben@example.com', parameters: [parameter] }];
    assert.deepEqual(outcomes(await session.send(message({ recipients }))), ['local rcpt 451 4.3.0 temporary']);
  }
  assert.equal(sink.commands.length, before);
  assert.equal(session.reusable, true);
});

test('a quoted local part is written in quotes, and postmaster needs no domain', async (t) => {
  const sink = await SmtpSink.start(t);
  const session = await open(t, sink);
  await session.send(message({ to: ['"a > b"@example.com', 'postmaster'] }));
  assert.deepEqual(sink.messages[0]?.envelope.slice(1), ['RCPT TO:<"a > b"@example.com>', 'RCPT TO:<postmaster>']);
});
