import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { next, reject } from '../../../../core/pipeline/verdict.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { refused, deferred } from '../../../core/pipeline/fake-target.js';
import { address, proxyFixture, said, send, text, type ProxyFixtureOptions } from './proxy-fixture.js';

const queued = /^250 2\.0\.0 Ok: queued as /;
const local = 'x@localhost';
const one = 'ben@one.example';
const two = 'cleo@two.example';

interface Given extends Omit<ProxyFixtureOptions, 'options'> {
  readonly one?: SinkScript;
  readonly two?: SinkScript;
  /** Of both rules. */
  readonly rule?: object;
  readonly options?: object;
}

/** Rules `one` and `two` for the domains of those names. */
async function between(t: TestContext, given: Given = {}) {
  const first = await SmtpSink.start(t, given.one);
  const second = await SmtpSink.start(t, given.two);
  const ruleOf = (name: string, { port }: SmtpSink, { protocol = 'smtp' }: SinkScript = {}) => ({
    name,
    rcpt: `.*@${name}\\.example`,
    hosts: ['127.0.0.1'],
    port,
    protocol: protocol === 'lmtp' ? protocol : 'esmtp',
    tls: 'never',
    ...given.rule,
  });
  const rules = [ruleOf('one', first, given.one), ruleOf('two', second, given.two)];
  const fixture = await proxyFixture(t, { ...given, options: { rules } });
  return { ...fixture, first, second, client: await fixture.client(given.modes?.[0]) };
}

describe('local and proxied recipients in one message', () => {
  test('have it all or none: the server takes it', async (t) => {
    const { client, first, holders } = await between(t);
    assert.match(await send(client, local, one), queued);
    assert.deepEqual([first.messages.length, holders()], [1, [`local ${local}`]]);
  });

  test('(c) the server defers: no recipient has it, and the sender retries', async (t) => {
    const { client, holders } = await between(t, { one: { steps: { dot: '450 4.7.1 Later' } } });
    assert.equal(await send(client, local, one), '450 4.7.1 Later');
    assert.deepEqual(holders(), []);
  });

  test('(c) the connection is lost after the dot: no recipient here has it', async (t) => {
    const { client, holders } = await between(t, { one: { steps: { dot: { reset: true } } } });
    assert.match(await send(client, local, one), /^451 4\.4\.2 /);
    assert.deepEqual(holders(), []);
  });

  test('(b) after a permanent refusal the others have it, and a notice is due', async (t) => {
    const { client, holders, target } = await between(t, { one: { steps: { dot: '554 5.6.0 Spam' } } });
    assert.match(await send(client, one, local), queued);
    assert.deepEqual(holders(), [`local ${local}`, `bounce ${one}`]);
    const data = target('bounce').recipients[0]?.hop?.data;
    assert.deepEqual(data, {
      reply: { code: 554, status: '5.6.0', lines: ['Spam'] },
      hop: { target: 'proxy', destination: 'one' },
    });
  });

  test('(b) a permanent refusal with no other recipient goes to the sender', async (t) => {
    const { client, holders } = await between(t, { one: { steps: { dot: '554 5.6.0 Spam' } } });
    assert.equal(await send(client, one, 'ben2@one.example'), '554 5.6.0 Spam');
    assert.deepEqual(holders(), []);
  });

  test('the server has taken it and a mailbox is full: retry owns that one', async (t) => {
    const { client, first, holders } = await between(t, { local: { outcome: deferred() } });
    assert.match(await send(client, local, one), queued);
    assert.deepEqual([first.messages.length, holders()], [1, [`retry ${local}`]]);
  });

  test('a mailbox cannot be prepared: the server is not asked for the message', async (t) => {
    const local1 = { fails: { step: 'body', error: new Error('disk') } } as const;
    const { client, first, holders } = await between(t, { local: local1 });
    assert.match(await send(client, local, one), /^451 4\.3\.0 /);
    await first.until(({ commands }) => commands.includes('RSET'));
    assert.deepEqual([first.messages.length, holders(), first.commands.includes('DATA')], [0, [], false]);
  });
});

describe('(a) recipients of two rules', () => {
  test('are both asked for; the second goes through the queue', async (t) => {
    const { client, first, second, holders, target } = await between(t);
    assert.deepEqual(await address(client, one, two), ['250 2.1.5 Recipient fine', '250 2.1.5 Recipient fine']);
    assert.match(said(await client.data(text)), queued);
    assert.deepEqual([first.messages.length, second.messages.length], [1, 0]);
    assert.deepEqual(holders(), [`relay ${two}`]);
    assert.deepEqual(target('relay').recipients[0]?.hop, {
      target: 'relay',
      destination: 'target:proxy',
      data: { hop: { target: 'proxy', destination: 'two' } },
    });
    await second.until(({ commands }) => commands.includes('RSET'));
  });

  test('the second is refused by its own server', async (t) => {
    const { client, second } = await between(t, { two: { steps: { rcpt: '550 5.1.1 No Cleo' } } });
    assert.deepEqual((await address(client, one, two))[1], '550 5.1.1 No Cleo');
    assert.match(said(await client.data(text)), /^250 /);
    assert.equal(second.messages.length, 0);
  });

  test('the first server says later: the queue has nothing', async (t) => {
    const { client, holders } = await between(t, { one: { steps: { dot: '451 4.3.0 Later' } } });
    assert.equal(await send(client, one, two), '451 4.3.0 Later');
    assert.deepEqual(holders(), []);
  });

  test('a rule that has refused its recipient is not the first', async (t) => {
    const { client, second, holders } = await between(t, { one: { steps: { rcpt: '550 5.1.1 No' } } });
    await address(client, one, two);
    assert.match(said(await client.data(text)), /^250 2\.0\.0 /);
    assert.deepEqual([second.messages.length, holders()], [1, []]);
  });

  test('a rule whose recipient another hook has refused is not the first', async (t) => {
    const { client, first, second, pipeline } = await between(t, { rule: { split: 'defer', recipients: 'reject' } });
    pipeline.on('site', 'rcptTo', { order: 'last' }, ({ address: { address: asked } }) =>
      asked === one ? reject(550, '5.7.1', 'Not him') : next(),
    );
    assert.deepEqual(await address(client, one, local, two), [
      '550 5.7.1 Not him',
      '250 2.1.5 Recipient OK',
      '250 2.1.5 Recipient fine',
    ]);
    assert.match(said(await client.data(text)), queued);
    assert.deepEqual([first.messages.length, second.messages.length], [0, 1]);
  });

  for (const [when, given] of [
    ['the rule says so', { rule: { split: 'defer' } }],
    ['there is no queue', { queueless: true }],
  ] as const) {
    test(`the second is to come again when ${when}`, async (t) => {
      const { client, second } = await between(t, given);
      assert.match((await address(client, one, two))[1] ?? '', /^450 4\.5\.3 /);
      assert.match(said(await client.data(text)), /^250 /);
      assert.equal(second.connections, 0);
    });
  }
});

describe('the other recipients of a rule', () => {
  test('are refused when it is reject, but not before it', async (t) => {
    const { client } = await between(t, { rule: { recipients: 'reject' } });
    assert.deepEqual(await address(client, local, one, local), [
      '250 2.1.5 Recipient OK',
      '250 2.1.5 Recipient fine',
      '550 5.7.1 Not in one message with the recipients before',
    ]);
  });

  test('are sent to the same server when it is accept', async (t) => {
    const { client, first, holders } = await between(t, { rule: { recipients: 'accept' } });
    assert.match(await send(client, one, 'any@where.example'), /^250 /);
    assert.deepEqual(first.messages[0]?.recipients, [one, 'any@where.example']);
    assert.deepEqual(holders(), []);
  });
});

describe('(e) a server that speaks LMTP', () => {
  const lmtp = (dot: SinkScript['steps']): SinkScript => ({ protocol: 'lmtp', ...(dot && { steps: dot }) });
  const many = ['a@one.example', 'b@one.example', 'c@one.example'] as const;

  test('answers for each: 4yz is queued, 5yz is bounced, the sender hears yes', async (t) => {
    const dot = ['250 2.0.0 A has it', '452 4.2.2 B is full', '550 5.2.1 C is gone'];
    const { client, holders } = await between(t, { one: lmtp({ dot }) });
    assert.match(await send(client, ...many), queued);
    assert.deepEqual(holders(), ['retry b@one.example', 'bounce c@one.example']);
  });

  test('whose replies agree is the answer', async (t) => {
    for (const [dot, answer] of [
      ['452 4.2.2 Full', '452 4.2.2 Full'],
      ['550 5.2.1 Gone', '550 5.2.1 Gone'],
      ['250 2.0.0 Kept', '250 2.0.0 Kept'],
    ] as const) {
      const { client, holders } = await between(t, { one: lmtp({ dot }) });
      assert.equal(await send(client, ...many), answer);
      assert.deepEqual(holders(), []);
    }
  });

  test('does not count recipients that it has refused, and its connection stays in step', async (t) => {
    const { client, first } = await between(t, {
      one: lmtp({
        rcpt: [undefined, '550 5.1.1 Not B', undefined],
        dot: ({ nth }) => (nth === 0 ? '550 5.7.1 Not A' : '250 2.0.0 Kept'),
      }),
    });
    assert.match(await send(client, ...many), queued);
    assert.match(await send(client, many[0]), /^550 5\.7\.1 Not A$/);
    assert.equal(first.connections, 1);
  });

  test('that is lost between two replies keeps the answered recipients; the others are queued', async (t) => {
    const dot = ['250 2.0.0 A has it', { reset: true }] as const;
    const { client, holders, first } = await between(t, { one: lmtp({ dot: ({ nth }) => dot[Math.min(nth, 1)] }) });
    assert.match(await send(client, ...many), queued);
    assert.deepEqual(holders(), ['retry b@one.example', 'retry c@one.example']);
    assert.equal(first.open, 0, 'a half-answered connection is not kept');
  });

  test('that says goodbye in place of one reply: later replies count, so that no recipient gets it twice', async (t) => {
    const dot = [{ raw: '421 4.3.2 Bye\r\n250 2.0.0 B has it\r\n' }, { close: '' }] as const;
    const { client, holders } = await between(t, { one: lmtp({ dot }) });
    assert.match(await send(client, ...many), queued);
    assert.deepEqual(holders(), ['retry a@one.example', 'retry c@one.example']);
  });

  test('answers each client of LMTP for its own recipients, duplicates included', async (t) => {
    const dot = ['250 2.0.0 First', '452 4.2.2 Second'] as const;
    const { client, holders } = await between(t, {
      one: lmtp({ dot: ({ nth }) => dot[nth] }),
      modes: ['lmtp'],
      local: { outcome: refused(552, '5.2.2', 'Full for ever') },
    });
    await address(client, 'a@one.example', local, 'a@one.example', two, 'b@one.example');
    await client.command('DATA');
    client.write(`${text.replace(/^\./m, '..')}.\r\n`);
    const replies = (await client.readReplies(5)).map(said);
    assert.deepEqual(replies.slice(0, 3), ['250 2.0.0 First', '552 5.2.2 Full for ever', '250 2.0.0 First']);
    assert.match(replies[3] ?? '', queued);
    assert.equal(replies[4], '452 4.2.2 Second');
    assert.deepEqual(holders(), [`relay ${two}`]);
  });
});
