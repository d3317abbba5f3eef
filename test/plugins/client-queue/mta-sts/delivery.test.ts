import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { MailRoutes } from '../../../../core/dns/mail-routes.js';
import { PolicedFinder } from '../../../../plugins/client-queue/mta-sts/sts-policies.js';
import type { KeptPolicy } from '../../../../plugins/client-queue/mta-sts/policy.js';
import { NextHops } from '../../../../plugins/client-queue/delivery/next-hops.js';
import { explainRelay } from '../../../../plugins/client-queue/delivery/relay-hook.js';
import { FixedResolver } from '../../../core/dns/fixed-resolver.js';
import { selfSigned } from '../../../support/certificate.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { outboundFixture, outcomes } from '../outbound-fixture.js';

const domain = 'example.net';
const policyOf = (mode: KeptPolicy['mode'], mx: readonly string[]): KeptPolicy => ({
  id: 'one',
  mode,
  mx: [...mx],
  maxAge: 86_400,
  fetchedAt: Date.now(),
});

/** A domain with two servers, both of which are the sink. */
async function fixture(t: TestContext, policy: KeptPolicy, script: SinkScript = {}) {
  const sink = await SmtpSink.start(t, script);
  const resolver = new FixedResolver({
    [domain]: {
      mx: [
        [10, 'mx1.example.net'],
        [20, 'mx2.example.net'],
      ],
    },
    'mx1.example.net': { a: ['127.0.0.1'] },
    'mx2.example.net': { a: ['127.0.0.2'] },
  });
  const routes = new MailRoutes({ resolver, ownNames: [], ownAddresses: () => [] });
  const finder = new PolicedFinder(
    {
      forDomain: (name, options) => routes.forDomain(name, options),
      forHosts: (hosts, options) => routes.forHosts(hosts, options),
      forget: () => undefined,
    },
    { of: (name) => Promise.resolve(name === domain ? policy : undefined), forgetFailures: () => undefined },
  );
  const outbound = await outboundFixture(t, { finder, options: { port: sink.port, tls: 'opportunistic' } });
  return { ...outbound, sink, finder, resolver };
}

describe('mail for a domain with a policy that is enforced', () => {
  test('goes to no server that the policy does not allow', async (t) => {
    const { delivered, sink } = await fixture(t, policyOf('enforce', ['*.mail.example.net']));
    const entry = await delivered({ to: ['bob@example.net'] });
    assert.deepEqual(outcomes(entry), ['bob@example.net deferred 451 4.7.0']);
    const why = 'The MTA-STS policy of example.net allows none of its mail servers (mx1.example.net, mx2.example.net)';
    assert.equal(entry.recipients[0]?.lastReply?.text, why);
    assert.deepEqual(sink.commands, []);
  });

  test('is sent to those of its servers that the policy allows', async (t) => {
    const { finder } = await fixture(t, policyOf('enforce', ['mx2.example.net']));
    const found = await finder.forDomain(domain, { allowPrivate: true });
    assert.equal(found.outcome, 'found');
    assert.deepEqual(
      found.hops.map(({ host }) => host),
      ['mx2.example.net'],
    );
  });

  for (const [title, script, status] of [
    ['offers no TLS', {}, '4.7.4'],
    ['has a certificate of nobody we trust', { tls: selfSigned('mx1.example.net') }, '4.7.5'],
  ] as const) {
    test(`waits when the server ${title}, and says why`, async (t) => {
      const { delivered, sink } = await fixture(t, policyOf('enforce', ['mx1.example.net']), script);
      const entry = await delivered({ to: ['bob@example.net'] });
      assert.equal(entry.recipients[0]?.state, 'deferred');
      assert.equal(entry.recipients[0]?.lastReply?.status, status);
      assert.match(entry.recipients[0]?.lastReply?.text ?? '', /\(the MTA-STS policy of the domain demands it\)$/);
      assert.equal(sink.messages.length, 0);
      assert.ok(!sink.commands.some((line) => line.startsWith('MAIL')), sink.commands.join());
    });
  }

  test('is explained', async (t) => {
    const { finder, settings } = await fixture(t, policyOf('enforce', ['mx1.example.net']));
    const hops = new NextHops({
      finder,
      clock: { now: Date.now, monotonic: () => 0 },
      hostname: 'mail.example.org',
      settings: () => settings.current,
    });
    const explain = explainRelay(hops, { get: () => undefined });
    const sentences = await explain({ target: 'relay', destination: domain });
    assert.equal(sentences[1], 'Its MTA-STS policy demands TLS with a valid certificate.');
    assert.match(sentences[2] ?? '', /^First mx1\.example\.net .* with TLS or not at all, its certificate checked\.$/);
    assert.equal(sentences.length, 3);
  });
});

for (const mode of ['testing', 'none'] as const) {
  test(`mail for a domain whose policy is of mode ${mode} goes as if there were none`, async (t) => {
    const { delivered, sink } = await fixture(t, policyOf(mode, ['elsewhere.example.net']));
    assert.deepEqual(outcomes(await delivered({ to: ['bob@example.net'] })), ['bob@example.net delivered 250 2.0.0']);
    assert.equal(sink.messages.length, 1);
  });
}

test('of many servers those count that the policy allows, whatever their rank', async (t) => {
  const { finder, resolver } = await fixture(t, policyOf('enforce', ['last.example.net']));
  const mx: [number, string][] = [];
  for (let n = 0; n < 20; n += 1) {
    mx.push([n, `mx${n}.example.org`]);
    resolver.names[`mx${n}.example.org`] = { a: [`127.0.1.${n}`] };
  }
  resolver.names[domain] = { mx: [...mx, [99, 'last.example.net']] };
  resolver.names['last.example.net'] = { a: ['127.0.0.3'] };
  const found = await finder.forDomain(domain, { allowPrivate: true });
  assert.equal(found.outcome, 'found');
  assert.deepEqual(
    found.hops.map(({ host }) => host),
    ['last.example.net'],
  );
  assert.ok(!resolver.questions.some((question) => question.includes('mx0.')), 'nobody asks for the others');
});

test('mail for other domains is not concerned', async (t) => {
  const { finder, resolver } = await fixture(t, policyOf('enforce', ['elsewhere.example.net']));
  resolver.names['other.example'] = { mx: [[10, 'mx1.example.net']] };
  const found = await finder.forDomain('other.example', { allowPrivate: true });
  assert.equal(found.outcome === 'found' && found.mustVerify, undefined);
});
