import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { ClientPool } from '../../../../core/smtp/client/pool.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { described, destinationOf, failureOf, message, open, outcomes, text } from './fixture.js';

const plain = ['PIPELINING', '8BITMIME'];
const capabilities = [...plain, 'CHUNKING'];
const several = ['a@example.com', 'b@example.com', 'c@example.com'];

const verbs = ({ commands }: SmtpSink): readonly string[] => commands.map((line) => line.split(' ', 1)[0] ?? '');

async function attempt(t: Ending, steps: SinkScript['steps'] & object): Promise<readonly string[]> {
  const sink = await SmtpSink.start(t, { capabilities, steps });
  const session = await open(t, sink);
  const result = await session.send(message({ to: several }));
  assert.ok(!verbs(sink).includes('DATA'));
  assert.equal(session.reusable, outcomes(result).includes('delivered'));
  return outcomes(result);
}

test('a small message is one chunk where the server takes chunks, and the connection is used again', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities });
  const session = await open(t, sink);
  for (let count = 0; count < 2; count += 1) {
    const result = await session.send(message({ to: several }));
    assert.deepEqual(outcomes(result), ['delivered', 'delivered', 'delivered']);
    assert.equal(result.bytes, text.length);
  }
  const each = ['MAIL', 'RCPT', 'RCPT', 'RCPT', 'BDAT'];
  assert.deepEqual(verbs(sink), ['EHLO', ...each, ...each]);
  assert.equal(sink.messages[1]?.text.toString(), text);
});

test('the server gets the same text in a chunk as by DATA', async (t) => {
  const texts = [
    '',
    '.',
    '.\r\n..\r\n',
    'a\r\n.b',
    'a\r',
    'bare\nLF\r\n.\n',
    'bare\rCR',
    'é\r\n',
    `${'x'.repeat(16_000)}\r\n`,
  ];
  for (const written of texts) {
    const taken: (Buffer | undefined)[] = [];
    for (const offered of [plain, capabilities]) {
      const sink = await SmtpSink.start(t, { capabilities: offered });
      const session = await open(t, sink);
      assert.deepEqual(outcomes(await session.send(message({ content: { source: Buffer.from(written) } }))), [
        'delivered',
      ]);
      assert.equal(verbs(sink).includes('BDAT'), offered === capabilities);
      taken.push(sink.messages[0]?.text);
    }
    assert.deepEqual(taken[1], taken[0], JSON.stringify(written.slice(0, 40)));
  }
});

test('a recipient that is refused in the middle does not keep the message from the others', async (t) => {
  const rcpt = [undefined, '550 5.1.1 Nobody', undefined];
  assert.deepEqual(await attempt(t, { rcpt }), ['delivered', 'reply rcpt 550 5.1.1 permanent', 'delivered']);
});

test('without a recipient nothing is delivered, and each has its own reply', async (t) => {
  const rcpt = ['550 5.1.1 Nobody', '450 4.2.1 Later', '550 5.1.1 Nobody'];
  const nobody = 'reply rcpt 550 5.1.1 permanent';
  assert.deepEqual(await attempt(t, { rcpt }), [nobody, 'reply rcpt 450 4.2.1 temporary', nobody]);
});

test('the reply to the chunk is that to the message', async (t) => {
  const first = async (said: string): Promise<string | undefined> => (await attempt(t, { dot: said }))[0];
  assert.equal(await first('552 5.3.4 Too big'), 'reply final 552 5.3.4 permanent');
  assert.equal(await first('451 4.3.0 Disk full'), 'reply final 451 4.3.0 temporary');
  assert.equal(await first('354 Go'), 'protocol final 451 4.5.0 temporary after the dot');
});

test('a refused MAIL is the reply for all', async (t) => {
  const refused = 'reply mail 550 5.7.1 permanent';
  assert.deepEqual(await attempt(t, { mail: '550 5.7.1 No' }), [refused, refused, refused]);
});

test('after a lost connection the server may have the message, whatever it had answered', async (t) => {
  for (const lost of [{ reset: true }, { close: '' }] as const) {
    const unknown = 'closed final 451 4.4.2 temporary after the dot';
    assert.deepEqual(await attempt(t, { mail: lost }), [unknown, unknown, unknown]);
    const rcpt = ['550 5.1.1 Nobody', lost];
    assert.deepEqual(await attempt(t, { rcpt }), ['reply rcpt 550 5.1.1 permanent', unknown, unknown]);
    assert.deepEqual(await attempt(t, { dot: lost }), [unknown, unknown, unknown]);
  }
});

test('a server that leaves in front of the message has not got it', async (t) => {
  const left = 'reply mail 421 4.3.2 temporary';
  assert.deepEqual(await attempt(t, { mail: { close: '421 4.3.2 Going down' } }), [left, left, left]);
});

test('a server that takes a message without recipients is out of step', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities, steps: { rcpt: '550 5.1.1 Nobody', bdat: '250 2.0.0 Fine' } });
  const session = await open(t, sink);
  const empty = message({ content: { source: Buffer.alloc(0) } });
  assert.deepEqual(outcomes(await session.send(empty)), ['reply rcpt 550 5.1.1 permanent']);
  assert.equal(session.failure?.kind, 'protocol');
});

test('a server that offers chunks and does not know them bounces nothing, and is not sent another', async (t) => {
  for (const code of ['500 5.5.1', '502 5.5.1', '503 5.5.1']) {
    const sink = await SmtpSink.start(t, { capabilities, steps: { bdat: `${code} What?` } });
    const pool = new ClientPool();
    const server = destinationOf(sink);
    const [first = ''] = outcomes(await pool.send(server, message()));
    assert.match(first, /^protocol (?:data|final) 451 4\.5\.0 temporary/);
    assert.deepEqual(outcomes(await pool.send(server, message())), ['delivered']);
    assert.equal(verbs(sink).filter((verb) => verb === 'BDAT').length, 1);
    await pool.close();
  }
});

test('a server that is lost at a chunk gets the next message by DATA', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities, steps: { bdat: { close: '' } } });
  const pool = new ClientPool();
  atEnd(t, () => pool.close());
  const server = destinationOf(sink);
  assert.deepEqual(outcomes(await pool.send(server, message())), ['closed final 451 4.4.2 temporary after the dot']);
  assert.deepEqual(outcomes(await pool.send(server, message())), ['delivered']);
});

test('what is not small, or must be asked about at its end, goes by DATA', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities });
  const session = await open(t, sink);
  const large = message({ content: { source: Buffer.from('x\r\n'.repeat(10_000)) } });
  const stream = message({ content: { source: () => Readable.from([Buffer.from(text)]) } });
  await session.send(large);
  await session.send(stream);
  await session.send(message(), { mayEnd: () => true });
  assert.equal(sink.messages.length, 3);
  assert.ok(!verbs(sink).includes('BDAT'));
});

test('servers without PIPELINING or 8BITMIME, and LMTP servers, get no chunks', async (t) => {
  for (const script of [
    { capabilities: ['8BITMIME', 'CHUNKING'] },
    { capabilities: ['PIPELINING', 'CHUNKING'] },
    { capabilities, protocol: 'lmtp' },
  ] as const) {
    const sink = await SmtpSink.start(t, script);
    const session = await open(t, sink, { protocol: 'protocol' in script ? script.protocol : 'smtp' });
    assert.deepEqual(outcomes(await session.send(message())), ['delivered']);
    assert.ok(verbs(sink).includes('DATA'));
  }
});

test('a connection that may have died while it was idle gets no chunk, so that the message may go over another', async (t) => {
  const sink = await SmtpSink.start(t, { capabilities });
  const clock = new HandClock();
  const pool = new ClientPool({}, clock);
  atEnd(t, () => pool.close());
  await pool.send(destinationOf(sink), message());
  clock.advance(2);
  sink.script = { capabilities, steps: { mail: ({ connection }) => (connection === 0 ? { reset: true } : undefined) } };
  assert.deepEqual(outcomes(await pool.send(destinationOf(sink), message())), ['delivered']);
  assert.equal(sink.connections, 2);
  assert.equal(sink.messages.length, 2);
});

test('step by step the message is one chunk too, or follows DATA', async (t) => {
  for (const offered of [plain, capabilities]) {
    const sink = await SmtpSink.start(t, { capabilities: offered, steps: { dot: [undefined, '554 5.6.0 No'] } });
    const session = await open(t, sink);
    const replies: string[] = [];
    for (const state of [true, false]) {
      await session.mailWithRcpt({ address: 'anna@example.org' }, { address: 'ben@example.com' });
      await session.message({ source: Buffer.from(text) }, ({ code }) => replies.push(String(code)));
      assert.equal(session.reusable, state);
    }
    assert.deepEqual(replies, ['250', '554']);
    assert.deepEqual(verbs(sink).slice(1, 4), ['MAIL', 'RCPT', offered === plain ? 'DATA' : 'BDAT']);
    assert.equal(sink.messages[0]?.text.toString(), text);
  }
});

test('step by step a lost chunk may have arrived, and one that is not known has not', async (t) => {
  const cases = [
    [{ dot: { reset: true } }, /^closed final 451 4\.4\.2 temporary after the dot$/],
    [{ bdat: '500 5.5.1 What?' }, /^protocol (?:data|final) 451 4\.5\.0 temporary/],
  ] as const;
  for (const [steps, expected] of cases) {
    const session = await open(t, await SmtpSink.start(t, { capabilities, steps }));
    await session.mailWithRcpt({ address: 'anna@example.org' }, { address: 'ben@example.com' });
    const failure = await failureOf(session.message({ source: Buffer.from(text) }, () => assert.fail()));
    assert.match(described(failure), expected);
    assert.equal(session.reusable, false);
    assert.ok(session.refusedChunk);
  }
});
