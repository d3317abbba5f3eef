import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { parseAddress } from '../../../../core/mime/address.js';
import { change, next, reject } from '../../../../core/pipeline/verdict.js';
import { suiteEnding } from '../../../support/ending.js';
import { type Rule, type SinkScript, type SinkStep, SmtpSink } from '../../../support/smtp-sink.js';
import { address, proxyFixture, said, send, text, usual, type ProxyFixture } from './proxy-fixture.js';

const partner = 'ben@partner.example';
const queued = /^250 2\.0\.0 Ok: queued as /;

/** One rule for partner.example and its server. */
async function proxied(t: TestContext, script: SinkScript = {}, rule: object = {}) {
  const sink = await SmtpSink.start(t, script);
  const rules = [{ name: 'partner', rcpt: '.*@partner\\.example', hosts: ['127.0.0.1'], port: sink.port, ...usual }];
  const fixture: ProxyFixture = await proxyFixture(t, {
    options: { rules: rules.map((one) => ({ ...one, ...rule })) },
  });
  return { sink, fixture, client: await fixture.client() };
}

describe('a recipient of a rule', () => {
  test('is asked for at its server, and the message goes there as it came', async (t) => {
    const { sink, client, fixture } = await proxied(t, {
      steps: { rcpt: '250 2.1.5 Ben is here', dot: '250 2.6.0 Got it as 42' },
    });
    assert.deepEqual(await address(client, partner), ['250 2.1.5 Ben is here']);
    assert.equal(said(await client.data(text)), '250 2.6.0 Got it as 42');
    const [message] = sink.messages;
    assert.deepEqual([message?.sender, message?.recipients], ['anna@example.org', [partner]]);
    assert.match(
      message?.text.toString() ?? '',
      /^Received: from client\.example .*\r\nSubject: A test\r\n\r\nHello\r\n\.dot\r\n$/s,
    );
    assert.deepEqual(fixture.holders(), []);
  });

  test('has its message in one chunk where the server takes chunks, with the same bytes', async (t) => {
    const capabilities = ['PIPELINING', '8BITMIME', 'CHUNKING'];
    const { sink, client } = await proxied(t, { capabilities, steps: { dot: '250 2.6.0 Got it as 42' } });
    await address(client, partner);
    assert.equal(said(await client.data(text)), '250 2.6.0 Got it as 42');
    assert.ok(sink.commands.some((line) => line.startsWith('BDAT ')));
    assert.match(sink.messages[0]?.text.toString() ?? '', /\r\nSubject: A test\r\n\r\nHello\r\n\.dot\r\n$/);
  });

  test('gets the reply of its server verbatim', async (t) => {
    const rcpt: Rule = ['550 5.1.1 No Ben', '450 4.2.1 Ben sleeps', '550 Plain no', '251 2.1.5 Will forward'];
    const { client, sink } = await proxied(t, { steps: { rcpt } });
    assert.deepEqual(await address(client, partner, partner, partner, partner), [
      '550 5.1.1 No Ben',
      '450 4.2.1 Ben sleeps',
      '550 5.0.0 Plain no',
      '251 2.1.5 Will forward',
    ]);
    assert.match(said(await client.data(text)), /^250 /);
    assert.deepEqual(sink.messages[0]?.recipients, [partner], 'refused ones are not in the envelope');
  });

  test('that was refused leaves a transaction without recipients', async (t) => {
    const { client, sink } = await proxied(t, { steps: { rcpt: '550 5.1.1 No' } });
    await address(client, partner);
    assert.equal((await client.command('DATA')).code, 503);
    assert.equal(sink.messages.length, 0);
  });

  test('does not apply to other recipients', async (t) => {
    const { client, sink } = await proxied(t);
    assert.deepEqual(await address(client, 'x@other.example', 'evil@partner.example.evil.example'), [
      '550 5.7.1 Relaying denied',
      '550 5.7.1 Relaying denied',
    ]);
    assert.equal(sink.connections, 0);
  });
});

type Case = readonly [step: SinkStep, rule: Rule, answer: RegExp];

/** A sink and a rule for each case, all in one server: `ben@case-0.example` is for the first. */
function behaving(cases: readonly Case[]) {
  const ending = suiteEnding();
  let made: Promise<ProxyFixture> | undefined;
  const start = async (): Promise<ProxyFixture> => {
    const sinks = await Promise.all(cases.map(([step, rule]) => SmtpSink.start(ending, { steps: { [step]: rule } })));
    const rules = sinks.map(({ port }, index) => ({
      rcpt: `.*@case-${index}\\.example`,
      hosts: [`127.0.0.1:${port}`],
      tls: 'never',
      timeouts: isSilent(cases[index]?.[1]) ? { answerSeconds: 1, dataSeconds: 1 } : {},
    }));
    return proxyFixture(ending, { options: { rules } });
  };
  return () => (made ??= start());
}

const isSilent = (rule: Rule | undefined): boolean => /silent|stall|drip/.test(JSON.stringify(rule));

const afterwards: readonly Case[] = [
  ['data', '451 4.3.2 Not now', /^451 4\.3\.2 Not now$/],
  ['data', '554 5.7.1 Never', /^554 5\.7\.1 Never$/],
  ['dot', '450 4.7.1 Greylisted', /^450 4\.7\.1 Greylisted$/],
  ['dot', '552-5.2.3 Too big\n552 5.2.3 Much', /^552 5\.2\.3 Too big Much$/],
  ['dot', '554 5.6.0 Spam', /^554 5\.6\.0 Spam$/],
  ['dot', '421 4.3.2 Going down', /^451 4\.3\.2 Going down$/],
  ['dot', '250 2.0.0 Thanks', /^250 2\.0\.0 Thanks$/],
  ['dot', { close: '' }, /^451 4\.4\.2 /],
  ['dot', { reset: true }, /^451 4\.4\.2 /],
  ['dot', { silent: true }, /^451 4\.4\.2 /],
  ['dot', { raw: 'garbage\r\n' }, /^451 4\.5\.0 /],
  ['dot', '354 Go on', /^451 4\.5\.0 /],
  ['dot', { raw: '250 2.0.0 One\r\n250 2.0.0 Two\r\n' }, /^451 4\.5\.0 /],
  ['data', { silent: true }, /^451 4\.4\.2 /],
];

describe('the answer to the message is that of the server', { concurrency: true }, () => {
  const fixture = behaving(afterwards);
  afterwards.forEach(([step, rule, answer], index) => {
    test(`${step}: ${JSON.stringify(rule)}`, async () => {
      const client = await (await fixture()).client();
      assert.match(await send(client, `ben@case-${index}.example`), answer);
      assert.deepEqual((await fixture()).holders(), []);
      assert.equal((await client.command('NOOP')).code, 250, 'the session goes on');
      client.close();
    });
  });
});

const before: readonly Case[] = [
  ['greeting', '554 5.7.1 Not you', /^451 4\.\d\.\d /],
  ['greeting', '421 4.3.2 Busy', /^451 4\.3\.2 Busy$/],
  ['greeting', { reset: true }, /^451 4\.4\.[12] /],
  ['greeting', { silent: true }, /^451 4\.4\.2 /],
  ['greeting', { raw: '220 hello\r\n250 early\r\n' }, /^451 4\.5\.0 /],
  ['ehlo', { silent: true }, /^451 4\.4\.2 /],
  ['ehlo', { drip: '250-x\r\n', everyMs: 20 }, /^451 4\.\d\.\d /],
  ['mail', '550 5.7.1 Bad sender', /^550 5\.7\.1 Bad sender$/],
  ['mail', '451 4.7.1 Sender later', /^451 4\.7\.1 Sender later$/],
  ['mail', '421 4.7.0 Go away', /^451 4\.7\.0 Go away$/],
  ['mail', { close: '' }, /^451 4\.4\.2 /],
  ['mail', { stall: true }, /^451 4\.4\.2 /],
  ['rcpt', '421 4.7.0 Go away', /^451 4\.7\.0 Go away$/],
  ['rcpt', { reset: true }, /^451 4\.4\.2 /],
  ['rcpt', { stall: true }, /^451 4\.4\.2 /],
  ['rcpt', { raw: '250 2.1.5 Yes\r\n250 2.1.5 Yes\r\n' }, /^451 4\.5\.0 /],
  ['rcpt', { raw: '250 2.1.5 Yes\r\n354 Go\r\n' }, /^451 4\.5\.0 /],
  ['rcpt', { raw: '999 What\r\n' }, /^451 4\.5\.0 /],
];

describe('a server that fails before the message', { concurrency: true }, () => {
  const fixture = behaving(before);
  before.forEach(([step, rule, answer], index) => {
    test(`${step}: ${JSON.stringify(rule)}`, async () => {
      const client = await (await fixture()).client();
      const [reply = ''] = await address(client, `ben@case-${index}.example`);
      assert.match(reply, answer);
      const { code } = await client.command('RCPT TO:<x@localhost>');
      assert.equal(code, 250, 'others are not concerned');
      client.close();
    });
  });
});

test('a server is asked once for a transaction whose sender it refuses', async (t) => {
  const { client, sink } = await proxied(t, { steps: { mail: '550 5.7.1 Bad sender' } });
  const bad = '550 5.7.1 Bad sender';
  assert.deepEqual(await address(client, partner, partner), [bad, bad]);
  assert.equal(sink.commands.filter((line) => line.startsWith('MAIL')).length, 1);
});

describe('connections to the server', () => {
  test('are used again, in a session and by the next one', async (t) => {
    const { client, sink, fixture } = await proxied(t);
    for (let n = 0; n < 3; n += 1) assert.match(await send(client, partner), /^250 /);
    const other = await fixture.client();
    assert.match(await send(other, partner), /^250 /);
    assert.equal(sink.connections, 1);
    assert.equal(sink.messages.length, 4);
  });

  test('serve one transaction at a time', async (t) => {
    const { client, sink, fixture } = await proxied(t);
    const other = await fixture.client();
    await address(client, partner);
    await address(other, partner);
    assert.equal(sink.connections, 2);
    assert.match(said(await other.data(text)), /^250 /);
    assert.match(said(await client.data(text)), /^250 /);
  });

  for (const [how, act] of [
    ['RSET', (client) => client.command('RSET')],
    ['EHLO', (client) => client.command('EHLO again.example')],
    ['the end of the session', (client) => Promise.resolve(client.reset())],
    ['a refused message', (client) => client.data('nul \0\r\n')],
  ] as const satisfies readonly (readonly [string, (client: ProxiedClient) => Promise<unknown>])[]) {
    test(`forget a transaction that ends by ${how}`, async (t) => {
      const { client, sink, fixture } = await proxied(t);
      await address(client, partner);
      await act(client);
      await sink.until(({ commands }) => commands.includes('RSET'));
      const other = await fixture.client();
      assert.match(await send(other, partner), /^250 /);
      assert.deepEqual([sink.connections, sink.messages.length], [1, 1]);
    });
  }

  test('that died meanwhile are replaced unnoticed', async (t) => {
    const { client, sink } = await proxied(t);
    await send(client, partner);
    sink.cut();
    assert.match(await send(client, partner), /^250 /);
    await address(client, partner);
    sink.cut();
    assert.match(said(await client.data(text)), /^250 /, 'behind RCPT too, for the server has nothing of it');
    assert.deepEqual([sink.connections, sink.messages.length], [3, 3]);
  });

  test('are closed after an error', async (t) => {
    const { client, sink } = await proxied(t, {
      steps: { dot: [{ raw: '250 2.0.0 Ok\r\n250 2.0.0 More\r\n' }, undefined] },
    });
    assert.match(await send(client, partner), /^451 /);
    assert.match(await send(client, partner), /^250 /);
    assert.equal(sink.connections, 2);
  });
});

type ProxiedClient = Awaited<ReturnType<ProxyFixture['client']>>;

describe('what the message needs and the server does not offer', () => {
  test('is refused at RCPT where that can be known', async (t) => {
    const { client } = await proxied(t, { capabilities: ['SIZE 1000', '8BITMIME'] });
    await client.command('MAIL FROM:<anna@example.org> SIZE=2000');
    assert.match(said(await client.command(`RCPT TO:<${partner}>`)), /^552 5\.3\.4 /);
    await client.command('RSET');
    await client.command('MAIL FROM:<änna@example.org> SMTPUTF8');
    assert.match(said(await client.command(`RCPT TO:<${partner}>`)), /^550 5\.6\.7 /);
    await client.command('RSET');
    await client.command('MAIL FROM:<anna@example.org> SMTPUTF8');
    assert.match(said(await client.command('RCPT TO:<bän@partner.example>')), /^550 5\.6\.7 /);
    assert.equal((await client.command(`RCPT TO:<${partner}>`)).code, 250);
  });

  test('is refused at the dot where it cannot, and nothing is sent', async (t) => {
    const { client, sink } = await proxied(t, { capabilities: ['SIZE 1000'] });
    const cases: readonly (readonly [parameters: string, text: string, answer: RegExp])[] = [
      ['', `Subject: x\r\n\r\n${'x'.repeat(900)}\r\n${'x'.repeat(900)}`, /^552 5\.3\.4 /],
      [' BODY=8BITMIME', 'Subject: x\r\n\r\nü\r\n', /^554 5\.6\.3 /],
      [' SMTPUTF8', 'Subject: ü\r\n\r\nx\r\n', /^554 5\.6\.9 /],
      [' BODY=8BITMIME', 'Subject: x\r\n\r\nplain after all\r\n', /^250 /],
    ];
    for (const [parameters, message, answer] of cases) {
      await client.command(`MAIL FROM:<anna@example.org>${parameters}`);
      await client.command(`RCPT TO:<${partner}>`);
      assert.match(said(await client.data(message)), answer);
    }
    assert.equal(sink.messages.length, 1);
    assert.equal(sink.connections, 1);
  });

  test('is passed on: SIZE, SMTPUTF8 and DSN parameters', async (t) => {
    const { client, sink } = await proxied(t);
    await client.command('MAIL FROM:<anna@example.org> SIZE=500 SMTPUTF8');
    await client.command('RCPT TO:<bän@partner.example>');
    assert.match(said(await client.data('Subject: ü\r\n\r\nx\r\n')), /^250 /);
    assert.match(
      sink.messages[0]?.envelope[0] ?? '',
      /^MAIL FROM:<anna@example\.org> SIZE=500 BODY=8BITMIME SMTPUTF8$/,
    );
  });
});

test('the original recipient is passed on as written', async (t) => {
  const { client, sink } = await proxied(t, { capabilities: ['DSN', 'SMTPUTF8', '8BITMIME'] });
  for (const [original, sent] of [
    ['rfc822;ben+2Bx@partner.example', 'rfc822;ben+2Bx@partner.example'],
    ['utf-8;bën+2Bx@例え.example', 'utf-8;b\\x{EB}n+2Bx@\\x{4F8B}\\x{3048}.example'],
  ] as const) {
    await client.command('MAIL FROM:<anna@example.org> SMTPUTF8');
    await client.command(`RCPT TO:<${partner}> NOTIFY=FAILURE ORCPT=${original}`);
    assert.match(said(await client.data('Subject: x\r\n\r\nx\r\n')), /^250 /);
    assert.ok(sink.messages.at(-1)?.envelope[1]?.endsWith(` NOTIFY=FAILURE ORCPT=${sent}`));
  }
});

describe('the identity of the client', () => {
  test('is sent by XCLIENT where configured and offered, over a separate connection', async (t) => {
    const { client, sink, fixture } = await proxied(
      t,
      { capabilities: ['XCLIENT ADDR PORT HELO PROTO LOGIN'] },
      { xclient: true },
    );
    await send(client, partner);
    await send(client, partner);
    assert.match(sink.commands[1] ?? '', /^XCLIENT ADDR=127\.0\.0\.1 PORT=\d+ HELO=client\.example PROTO=ESMTP$/);
    assert.equal(sink.connections, 1);
    await send(await fixture.client(), partner);
    assert.equal(sink.connections, 2);
    client.close();
    await sink.until(({ open }) => open === 1);
  });

  test('is not sent to a server that does not offer it', async (t) => {
    const { client, sink } = await proxied(t, {}, { xclient: true });
    assert.match(await send(client, partner), /^250 /);
    assert.ok(sink.commands.every((line) => !line.startsWith('XCLIENT')));
  });
});

test('the verdict of a later hook counts, and its recipients are not sent', async (t) => {
  const { client, sink, fixture } = await proxied(t);
  fixture.pipeline.on('site', 'rcptTo', { order: 'last' }, ({ address: one }) =>
    one.local === 'evil' ? reject(550, '5.7.1', 'Not him') : next(),
  );
  assert.deepEqual(await address(client, 'evil@partner.example', partner), [
    '550 5.7.1 Not him',
    '250 2.1.5 Recipient fine',
  ]);
  assert.match(said(await client.data(text)), /^250 /);
  assert.deepEqual(
    sink.messages.map(({ recipients }) => recipients),
    [[partner]],
  );
});

test('the sender that a hook has changed is the sender of the message', async (t) => {
  const { client, sink, fixture } = await proxied(t);
  for (const sender of [parseAddress('srs@forwarder.example'), null]) {
    fixture.pipeline.on('site', 'message', {}, () => change({ change: 'sender', address: sender }));
    assert.match(await send(client, partner), /^250 /);
    assert.equal(sink.messages.at(-1)?.sender, sender?.address ?? '');
  }
  assert.equal(sink.messages.length, 2);
  assert.equal(sink.connections, 1);
});

test('a local recipient is not taken by the rule', async (t) => {
  const { client, sink, fixture } = await proxied(t);
  assert.match(await send(client, 'x@localhost'), queued);
  assert.deepEqual([fixture.holders(), sink.connections], [['local x@localhost'], 0]);
});
