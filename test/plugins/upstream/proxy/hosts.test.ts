import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { freePort } from '../../../support/free-port.js';
import { selfSigned } from '../../../support/certificate.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { ProxyOptions } from '../../../../plugins/upstream/proxy/options.js';
import { address, proxyFixture, send } from './proxy-fixture.js';

const ben = 'ben@partner.example';
const rule = (hosts: readonly string[], more: object = {}) => ({
  rules: [{ name: 'partner', rcpt: '.*@partner\\.example', hosts, tls: 'never', ...more }],
});

describe('several hosts', () => {
  test('are tried in their order; one that is dead or sulks is passed over', async (t) => {
    const dead = `127.0.0.1:${await freePort()}`;
    const busy = await SmtpSink.start(t, { steps: { greeting: '421 4.3.2 Busy' } });
    const good = await SmtpSink.start(t);
    const spare = await SmtpSink.start(t);
    const hosts = [dead, `127.0.0.1:${busy.port}`, `127.0.0.1:${good.port}`, `127.0.0.1:${spare.port}`];
    const { client } = await proxyFixture(t, { options: rule(hosts) });
    assert.match(await send(await client(), ben), /^250 /);
    assert.deepEqual([busy.connections, good.messages.length, spare.connections], [1, 1, 0]);
  });

  test('do not get around a no', async (t) => {
    const first = await SmtpSink.start(t, { steps: { mail: '450 4.7.1 Not yet' } });
    const second = await SmtpSink.start(t);
    const { client } = await proxyFixture(t, {
      options: rule([`127.0.0.1:${first.port}`, `127.0.0.1:${second.port}`]),
    });
    assert.deepEqual(await address(await client(), ben), ['450 4.7.1 Not yet']);
    assert.equal(second.connections, 0);
  });
});

describe('the breaker of a host', () => {
  test('opens, is seen, spares the calls, and closes when the host answers again', async (t) => {
    const port = await freePort();
    const fixture = await proxyFixture(t, {
      options: rule([`127.0.0.1:${port}`], { breaker: { failures: 2, seconds: 1 } }),
    });
    const state = async () => {
      const { rules } = (await fixture.json('/proxy')) as {
        rules: { hosts: { state: string; why: string | null }[] }[];
      };
      return rules[0]?.hosts[0];
    };
    const { health } = fixture;
    const session = await fixture.client();
    assert.equal((await state())?.state, 'closed');
    assert.match((await address(session, ben))[0] ?? '', /^451 4\.4\.1 /);
    await session.command('RSET');
    assert.match((await address(session, ben))[0] ?? '', /^451 4\.4\.1 /);
    assert.equal((await state())?.state, 'open');
    const { status, why } = health.components()['proxy'] ?? {};
    assert.equal(status, 'degraded');
    assert.match(why ?? '', /127\.0\.0\.1:\d+ of rule partner/);

    const sink = await SmtpSink.start(t, {}, port);
    await session.command('RSET');
    assert.match((await address(session, ben))[0] ?? '', /^451 4\.4\.1 /, 'the answer of the last call');
    assert.equal(sink.connections, 0, 'it was not called');
    while ((await state())?.state === 'open') await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal((await state())?.state, 'half-open');
    await session.command('RSET');
    assert.match(await send(session, ben), /^250 /);
    assert.deepEqual(await state(), { host: '127.0.0.1', port, state: 'closed', why: null, retryAfter: 0 });
    assert.equal(health.components()['proxy']?.status, 'up');
  });
});

describe('TLS to a host', () => {
  const { key, cert } = selfSigned();

  test('is used where it is offered, and needs a good certificate where it is required', async (t) => {
    const sink = await SmtpSink.start(t, { tls: { key, cert } });
    const hosts = [`127.0.0.1:${sink.port}`];
    for (const [tls, verify, answer, encrypted] of [
      ['never', undefined, /^250 /, false],
      ['opportunistic', undefined, /^250 /, true],
      ['require', false, /^250 /, true],
      ['require', undefined, /^451 4\.7\.5 |^503 /, undefined],
    ] as const) {
      const { client } = await proxyFixture(t, { options: rule(hosts, { tls, ...(verify === false && { verify }) }) });
      assert.match(await send(await client(), ben), answer, tls);
      if (encrypted !== undefined) assert.equal(sink.messages.at(-1)?.encrypted, encrypted);
    }
  });

  test('is needed for a password', async (t) => {
    const auth = { username: 'relay', password: 'open sesame' };
    const clear = await SmtpSink.start(t, { auth });
    const safe = await SmtpSink.start(t, { auth, tls: { key, cert } });
    const given = { tls: 'opportunistic', verify: false, auth: { user: 'relay', pass: 'open sesame' } };
    const refusing = await proxyFixture(t, { options: rule([`127.0.0.1:${clear.port}`], given) });
    assert.match((await address(await refusing.client(), ben))[0] ?? '', /^451 4\.7\.4 /);
    assert.ok(clear.commands.every((line) => !line.startsWith('AUTH')));
    const taking = await proxyFixture(t, { options: rule([`127.0.0.1:${safe.port}`], given) });
    assert.match(await send(await taking.client(), ben), /^250 /);
    assert.equal(safe.messages[0]?.user, 'relay');
  });
});

test('a rule of protocol smtp sends HELO', async (t) => {
  const sink = await SmtpSink.start(t);
  const { client } = await proxyFixture(t, { options: rule([`127.0.0.1:${sink.port}`], { protocol: 'smtp' }) });
  assert.match(await send(await client(), ben), /^250 /);
  assert.equal(sink.commands[0], 'HELO mail.example.org');
});

describe('a change of the rules', () => {
  test('counts for the next recipient; what is open comes to its end', async (t) => {
    const old = await SmtpSink.start(t);
    const fresh = await SmtpSink.start(t);
    const { client, running } = await proxyFixture(t, { options: rule([`127.0.0.1:${old.port}`]) });
    const [one, two] = [await client(), await client()];
    await address(one, ben);
    await running.reconfigure?.(ProxyOptions.parse(rule([`127.0.0.1:${fresh.port}`])));
    assert.match(await send(two, ben), /^250 /);
    assert.equal((await one.data('Subject: x\r\n\r\nx\r\n')).code, 250);
    assert.deepEqual([old.messages.length, fresh.messages.length], [1, 1]);
    await old.until(({ open }) => open === 0);
  });
});

describe('the page of rules', () => {
  test('has counts, and tests a mail', async (t) => {
    const sink = await SmtpSink.start(t, { steps: { rcpt: [undefined, '550 5.1.1 No', '450 4.2.1 Later'] } });
    const options = rule([`127.0.0.1:${sink.port}`], { tls: 'opportunistic', auth: undefined });
    const fixture = await proxyFixture(t, { options });
    await send(await fixture.client(), ben, ben, ben);
    const { rules } = (await fixture.json('/proxy')) as { rules: { counts: Record<string, number> }[] };
    const { bytes = 0, ...counts } = rules[0]?.counts ?? {};
    assert.deepEqual(counts, { matched: 3, accepted: 1, refused: 1, deferred: 1, spooled: 0, messages: 1 });
    assert.ok(bytes > 100);
    const { body } = await fixture.metrics.exposition.render('prometheus');
    assert.match(body, /postern_proxy_recipients_total\{rule="partner",result="refused"\} 1/);
    assert.match(body, /postern_proxy_breaker_state\{rule="partner",host="127\.0\.0\.1:\d+"\} 0/);
    assert.match(body, /postern_proxy_messages_total\{rule="partner",result="delivered"\} 1/);

    const { test: tested } = await fixture.json('/proxy?ip=192.0.2.1&rcpt=<x@other.example>');
    assert.deepEqual(tested, {
      rule: null,
      steps: [
        {
          rule: 'partner',
          matches: false,
          why: ['rcpt is x@other.example, and the rule wants .*@partner\\.example.'],
        },
      ],
    });
    assert.match(
      await fixture.page('/proxy?rcpt=%22%3E%3Cscript%3E@partner.example'),
      /&quot;&gt;&lt;script&gt;@partner\.example/,
    );
    assert.match(await fixture.page('/proxy?rcpt=ben@partner.example'), /The rule <strong>partner<\/strong>/);
  });
});

test('a dry run names the rule and opens no connection', async (t) => {
  const sink = await SmtpSink.start(t);
  const { pipeline } = await proxyFixture(t, { options: rule([`127.0.0.1:${sink.port}`]) });
  const explained = await pipeline.target('proxy')?.explain?.({ target: 'proxy', destination: 'partner' });
  assert.deepEqual(explained, [
    `It is handed to 127.0.0.1 port ${sink.port} by SMTP, without TLS, while the client waits.`,
  ]);
  assert.equal(sink.connections, 0);
});
