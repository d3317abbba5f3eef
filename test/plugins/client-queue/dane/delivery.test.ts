import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { describe, test, type TestContext } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import type { HopFinder } from '../../../../core/dns/next-hop.js';
import { makeCertificate } from '../../../../core/net/x509.js';
import { isProblem } from '../../../../core/problem.js';
import { MailFinder } from '../../../../plugins/client-queue/delivery/mail-finder.js';
import { NextHops } from '../../../../plugins/client-queue/delivery/next-hops.js';
import { OutboundSettings } from '../../../../plugins/client-queue/delivery/outbound.js';
import { explainRelay } from '../../../../plugins/client-queue/delivery/relay-hook.js';
import { PolicedFinder } from '../../../../plugins/client-queue/mta-sts/sts-policies.js';
import { ClientQueueOptions } from '../../../../plugins/client-queue/options.js';
import type { TlsAgreement } from '../../../../plugins/client-queue/tls-reports/tls-results.js';
import { type KeyPair, selfSigned } from '../../../support/certificate.js';
import { type DnsName, DnsServer, type Zone } from '../../../support/dns-server.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { outboundFixture, outcomes } from '../outbound-fixture.js';

const domain = 'example.net';
const host = 'mx.example.net';
const records = `_25._tcp.${host}`;

/** SHA-256 of the public key. */
function digestOf({ cert }: Pick<KeyPair, 'cert'>): string {
  const spki = new X509Certificate(cert).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(spki).digest('hex');
}
const tlsa = (pair: Pick<KeyPair, 'cert'>, usage = 3): string => `${usage} 1 1 ${digestOf(pair)}`;

/** A domain whose zone is signed, with one server, which is a sink. */
const zoneOf = (name: DnsName | undefined, more: Zone = {}): Zone => ({
  [domain]: { MX: [[10, host]], secure: true },
  [host]: { A: ['127.0.0.1'], secure: true },
  ...(name && { [records]: { secure: true, ...name } }),
  ...more,
});

interface Given {
  readonly zone: Zone;
  readonly script?: SinkScript;
  readonly options?: object;
  readonly wrap?: (finder: MailFinder) => HopFinder;
}

async function fixture(t: TestContext, { zone, script = {}, options = {}, wrap = (finder) => finder }: Given) {
  const dns = await DnsServer.start(t, zone);
  const sink = await SmtpSink.start(t, script);
  const given = {
    port: sink.port,
    tls: 'opportunistic',
    allowPrivateAddresses: true,
    dane: true,
    resolver: { servers: [dns.address], timeoutMs: 500 },
    ...options,
  };
  const finder = wrap(new MailFinder(ClientQueueOptions.parse(given), { hostname: 'mail.example.org' }, systemClock));
  const counted: { readonly host: string | undefined; readonly agreed: TlsAgreement }[] = [];
  const outbound = await outboundFixture(t, {
    finder,
    options: given,
    tlsResult: (_, server, agreed) => counted.push({ host: server.host, agreed }),
  });
  const hops = () =>
    new NextHops({
      finder,
      clock: systemClock,
      hostname: 'mail.example.org',
      settings: () => outbound.settings.current,
    });
  return { ...outbound, dns, sink, finder, counted, hops };
}

type Fixture = Awaited<ReturnType<typeof fixture>>;

async function delivers({ delivered, sink }: Fixture): Promise<string> {
  const entry = await delivered({ to: ['bob@example.net'] });
  assert.deepEqual(outcomes(entry), ['bob@example.net delivered 250 2.0.0']);
  assert.equal(sink.messages.length, 1);
  return entry.recipients[0]?.lastReply?.text ?? '';
}

/** Nothing of the mail is said, under TLS or in clear. */
async function defers({ delivered, sink }: Fixture, status: string): Promise<string> {
  const entry = await delivered({ to: ['bob@example.net'] });
  assert.deepEqual(outcomes(entry), [`bob@example.net deferred 451 ${status}`]);
  assert.deepEqual(sink.messages, []);
  assert.deepEqual(
    sink.commands.filter((line) => !/^(?:EHLO|STARTTLS)/.test(line)),
    [],
  );
  return entry.recipients[0]?.lastReply?.text ?? '';
}

describe('a server with a TLSA record of its key', () => {
  test('gets the mail under TLS, whatever name its certificate has', async (t) => {
    const pair = selfSigned('somebody.else');
    const fixed = await fixture(t, { zone: zoneOf({ TLSA: [tlsa(pair)] }), script: { tls: pair } });
    assert.equal(await delivers(fixed), 'Sunk (DANE: the certificate matches a TLSA record)');
    assert.equal(fixed.sink.messages[0]?.encrypted, true);
  });

  test('gets nothing when it has another key', async (t) => {
    const zone = zoneOf({ TLSA: [tlsa(selfSigned(host))] });
    const fixed = await fixture(t, { zone, script: { tls: selfSigned(host) } });
    const text = `${host}: The certificate matches none of the TLSA records (DANE: its TLSA records demand it)`;
    assert.equal(await defers(fixed, '4.7.5'), text);
  });

  test('gets nothing when it offers no TLS, or refuses it', async (t) => {
    const pair = selfSigned(host);
    const zone = zoneOf({ TLSA: [tlsa(pair)] });
    const text = await defers(await fixture(t, { zone }), '4.7.4');
    assert.equal(text, `${host}: TLS is required, and the server does not offer it (DANE: its TLSA records demand it)`);
    const refusing = await fixture(t, { zone, script: { tls: pair, steps: { starttls: '454 4.7.0 Not now' } } });
    const { recipients } = await refusing.delivered({ to: ['bob@example.net'] });
    assert.equal(recipients[0]?.state, 'deferred');
    assert.equal(recipients[0]?.lastReply?.text, 'Not now (DANE: its TLSA records demand it)');
    const broken = await fixture(t, { zone, script: { tls: pair, steps: { starttls: { close: '220 go' } } } });
    assert.equal((await broken.delivered({ to: ['bob@example.net'] })).recipients[0]?.state, 'deferred');
    assert.deepEqual([...refusing.sink.messages, ...broken.sink.messages], []);
  });

  test('gets the mail while its key changes: one of two records is enough', async (t) => {
    const pair = selfSigned(host);
    const zone = zoneOf({ TLSA: [tlsa(selfSigned(host)), tlsa(pair)] });
    await delivers(await fixture(t, { zone, script: { tls: pair } }));
  });

  test('satisfies what the operator requires', async (t) => {
    const pair = selfSigned(host);
    const zone = zoneOf({ TLSA: [tlsa(pair)] });
    await delivers(await fixture(t, { zone, script: { tls: pair }, options: { tls: 'require' } }));
  });

  test('is not held to it where the operator wants no TLS, or no DANE', async (t) => {
    const zone = zoneOf({ TLSA: [tlsa(selfSigned(host))] });
    for (const options of [{ tls: 'never' }, { dane: false }]) {
      const fixed = await fixture(t, { zone, options, script: { tls: selfSigned(host) } });
      assert.equal(await delivers(fixed), 'Sunk');
      assert.ok(!fixed.dns.questions.some((one) => one.startsWith('TLSA')));
    }
  });
});

describe('a server with a TLSA record of an authority', () => {
  const { privateKey: key } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const hour = 3_600_000;
  const life = { from: Date.now() - hour, to: Date.now() + hour };
  const authority = makeCertificate({ names: ['authority'], key, ...life, authority: true });
  const issued = (name: string, withIssuer = true): KeyPair => {
    const own = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    const cert = makeCertificate({ names: [name], key: own, ...life, issuer: { name: 'authority', key } });
    return {
      key: own.export({ type: 'pkcs8', format: 'pem' }).toString(),
      cert: withIssuer ? `${cert}${authority}` : cert,
    };
  };
  const zone = zoneOf({ TLSA: [tlsa({ cert: authority }, 2)] });

  for (const name of [host, domain]) {
    test(`gets the mail with a certificate of that authority for ${name}`, async (t) => {
      await delivers(await fixture(t, { zone, script: { tls: issued(name) } }));
    });
  }

  test('gets nothing with one for another name', async (t) => {
    const text = await defers(await fixture(t, { zone, script: { tls: issued('mx.example.org') } }), '4.7.5');
    assert.match(text, /names the issuer of the certificate, which is not for mx\.example\.net \(DANE/);
  });

  test('gets nothing without the certificate of the authority, or with another', async (t) => {
    await defers(await fixture(t, { zone, script: { tls: issued(host, false) } }), '4.7.5');
    await defers(await fixture(t, { zone, script: { tls: selfSigned(host) } }), '4.7.5');
  });
});

describe('DANE does not hold', () => {
  const wrong = { TLSA: [tlsa(selfSigned(host))] };
  const cases: readonly (readonly [title: string, zone: Zone])[] = [
    ['where the MX records are not signed', zoneOf(wrong, { [domain]: { MX: [[10, host]] } })],
    ['where the addresses of the server are not signed', zoneOf(wrong, { [host]: { A: ['127.0.0.1'] } })],
    ['where the TLSA records are not signed', zoneOf({ ...wrong, secure: false })],
    ['where there are no TLSA records', zoneOf(undefined)],
    ['for a domain without MX that is not signed', zoneOf(undefined, { [domain]: { A: ['127.0.0.1'] } })],
  ];
  for (const [title, zone] of cases) {
    test(title, async (t) => {
      const fixed = await fixture(t, { zone, script: { tls: selfSigned(host) } });
      assert.equal(await delivers(fixed), 'Sunk');
      const clear = await fixture(t, { zone });
      await delivers(clear);
      assert.equal(clear.sink.messages[0]?.encrypted, false);
    });
  }

  test('TLSA records of servers that are not signed are not even asked for', async (t) => {
    const { finder, dns } = await fixture(t, { zone: zoneOf(wrong, { [host]: { A: ['127.0.0.1'] } }) });
    await finder.forDomain(domain, { allowPrivate: true });
    assert.deepEqual(dns.questions.toSorted(), [`A ${host}`, `AAAA ${host}`, `MX ${domain}`]);
  });
});

describe('records of which none can be used', () => {
  const zone = zoneOf({ TLSA: [`0 1 1 ${digestOf(selfSigned(host))}`, `1 1 1 ${'00'.repeat(32)}`, '3 1 1 abcd'] });

  test('demand TLS, and any certificate will do', async (t) => {
    const fixed = await fixture(t, { zone, script: { tls: selfSigned('x') } });
    assert.equal(await delivers(fixed), 'Sunk (DANE: TLS, but no TLSA record can be used)');
    await defers(await fixture(t, { zone }), '4.7.4');
  });

  test('leave in force that the operator wants a valid certificate', async (t) => {
    await defers(await fixture(t, { zone, script: { tls: selfSigned(host) }, options: { tls: 'require' } }), '4.7.5');
  });
});

describe('what cannot be looked up is no permission', () => {
  const pair = selfSigned(host);
  const good = { TLSA: [tlsa(pair)] };
  const text = `The TLSA records of ${host} cannot be looked up, so nothing is sent there (DANE)`;
  const cases: readonly (readonly [title: string, zone: Zone, text: string])[] = [
    ['TLSA records fail', zoneOf({ rcode: 'SERVFAIL' }), text],
    ['nobody answers for TLSA records', zoneOf({ silent: true }), text],
    [
      'MX records fail',
      zoneOf(good, { [domain]: { rcode: 'SERVFAIL' } }),
      `The name servers could not answer for ${domain}`,
    ],
    [
      'addresses fail',
      zoneOf(good, { [host]: { rcode: 'SERVFAIL' } }),
      `The name servers could not answer for ${domain}`,
    ],
  ];
  for (const [title, zone, expected] of cases) {
    test(`when ${title}, the mail waits`, async (t) => {
      const fixed = await fixture(t, { zone, script: { tls: pair } });
      assert.equal(await defers(fixed, '4.4.3'), expected);
      assert.equal(fixed.sink.connections, 0);
    });
  }

  test('another server of the domain gets the mail, and a refusal there is not the last word', async (t) => {
    const zone = zoneOf(
      { rcode: 'SERVFAIL' },
      {
        [domain]: {
          MX: [
            [10, host],
            [20, 'mx2.example.net'],
          ],
          secure: true,
        },
        'mx2.example.net': { A: ['127.0.0.1'], secure: true },
        '_25._tcp.mx2.example.net': { ...good, secure: true },
      },
    );
    const fixed = await fixture(t, { zone, script: { tls: pair } });
    await delivers(fixed);
    assert.deepEqual(
      fixed.counted.map(({ host: name, agreed }) => [name, agreed !== undefined && 'kind' in agreed]),
      [
        [host, true],
        ['mx2.example.net', false],
      ],
    );
    const refusing = await fixture(t, { zone, script: { tls: pair, steps: { greeting: '554 5.7.1 Go away' } } });
    assert.deepEqual(outcomes(await refusing.delivered({ to: ['bob@example.net'] })), [
      'bob@example.net deferred 554 5.7.1',
    ]);
  });
});

describe('a server behind an alias', () => {
  const pair = selfSigned('x');
  const real = 'real.example.org';
  const alias = { [host]: { CNAME: real, secure: true } };
  const right = { TLSA: [tlsa(pair)], secure: true };
  const wrong = { TLSA: [tlsa(selfSigned('x'))], secure: true };

  test('is known by the records of what the alias leads to', async (t) => {
    const signed = { ...alias, [real]: { A: ['127.0.0.1'], secure: true } };
    const zone = zoneOf(wrong, { ...signed, [`_25._tcp.${real}`]: right });
    await delivers(await fixture(t, { zone, script: { tls: pair } }));
    await defers(
      await fixture(t, { zone: zoneOf(right, { ...signed, [`_25._tcp.${real}`]: wrong }), script: { tls: pair } }),
      '4.7.5',
    );
    // Without records there, its own count.
    await delivers(await fixture(t, { zone: zoneOf(right, signed), script: { tls: pair } }));
  });

  test('is known by its own records where it leads out of what is signed', async (t) => {
    const open = { ...alias, [real]: { A: ['127.0.0.1'] } };
    await delivers(await fixture(t, { zone: zoneOf(right, open), script: { tls: pair } }));
    await defers(await fixture(t, { zone: zoneOf(wrong, open), script: { tls: pair } }), '4.7.5');
    const unsigned = { ...open, [host]: { CNAME: real } };
    assert.equal(await delivers(await fixture(t, { zone: zoneOf(wrong, unsigned), script: { tls: pair } })), 'Sunk');
  });
});

test('a domain without MX records is its own server', async (t) => {
  const pair = selfSigned('x');
  const zone = (record: string): Zone => ({
    [domain]: { A: ['127.0.0.1'], secure: true },
    [`_25._tcp.${domain}`]: { TLSA: [record], secure: true },
  });
  await delivers(await fixture(t, { zone: zone(tlsa(pair)), script: { tls: pair } }));
  await defers(await fixture(t, { zone: zone(tlsa(selfSigned('x'))), script: { tls: pair } }), '4.7.5');
});

test('DANE takes the place of the certificate that an MTA-STS policy demands', async (t) => {
  const pair = selfSigned(host);
  const policy = { id: 'one', mode: 'enforce' as const, mx: [host], maxAge: 86_400, fetchedAt: Date.now() };
  const wrap = (finder: MailFinder): HopFinder =>
    new PolicedFinder(finder, { of: () => Promise.resolve(policy), forgetFailures: () => undefined });
  await delivers(await fixture(t, { zone: zoneOf({ TLSA: [tlsa(pair)] }), script: { tls: pair }, wrap }));
  const unusable = zoneOf({ TLSA: [tlsa(pair, 1)] });
  assert.match(await defers(await fixture(t, { zone: unusable, script: { tls: pair }, wrap }), '4.7.5'), /MTA-STS/);
  const wrong = zoneOf({ TLSA: [tlsa(selfSigned(host))] });
  assert.match(await defers(await fixture(t, { zone: wrong, script: { tls: pair }, wrap }), '4.7.5'), /DANE/);
  assert.match(
    await defers(await fixture(t, { zone: zoneOf(undefined), script: { tls: pair }, wrap }), '4.7.5'),
    /MTA-STS/,
  );
});

test('connections under different records are not shared', async (t) => {
  const pair = selfSigned(host);
  const fixed = await fixture(t, { zone: zoneOf({ TLSA: [tlsa(pair)], ttl: 1 }), script: { tls: pair } });
  await delivers(fixed);
  fixed.dns.zone = zoneOf({ TLSA: [tlsa(selfSigned(host))] });
  fixed.outbound.forgetFailures();
  const entry = await fixed.tried(await fixed.enqueue({ to: ['bob@example.net'] }));
  assert.deepEqual(outcomes(entry), ['bob@example.net deferred 451 4.7.5']);
  assert.equal(fixed.sink.messages.length, 1);
});

test('a reload switches it off and on', async (t) => {
  const { dns, finder } = await fixture(t, { zone: zoneOf({ TLSA: [tlsa(selfSigned(host))] }), wrap: (one) => one });
  assert.ok(finder instanceof MailFinder);
  const settings = (dane: boolean) =>
    ClientQueueOptions.parse({ dane, resolver: { servers: [dns.address], timeoutMs: 500 } });
  const search = async () => {
    const found = await finder.forDomain(domain, { allowPrivate: true });
    return found.outcome === 'found' && found.hops.some(({ dane }) => dane !== undefined);
  };
  assert.equal(await search(), true);
  assert.deepEqual([finder.prepare(settings(false))(), await search()], [true, false]);
  assert.deepEqual([finder.prepare(settings(true))(), await search()], [true, true]);
});

test('what DANE demands is explained', async (t) => {
  const explained = async (zone: Zone) => {
    const { hops } = await fixture(t, { zone });
    return explainRelay(hops(), { get: () => undefined })({ target: 'relay', destination: domain });
  };
  const [, one = '', ...others] = await explained(zoneOf({ TLSA: [tlsa(selfSigned(host))] }));
  assert.match(
    one,
    /with TLS or not at all, its certificate checked against 1 TLSA record of mx\.example\.net \(DANE\)\.$/,
  );
  assert.deepEqual(others, []);
  const [, unusable = ''] = await explained(zoneOf({ TLSA: ['0 0 1 00'] }));
  assert.match(unusable, /not at all, though none of the TLSA records of mx\.example\.net can be used/);
  const [, failed] = await explained(zoneOf({ rcode: 'SERVFAIL' }));
  assert.equal(
    failed,
    `There is no way now, it would be tried again later: 451 4.4.3 The TLSA records of ${host} cannot be looked up, so nothing is sent there (DANE).`,
  );
});

test('DANE without name servers that the operator trusts is refused', () => {
  const settings = (given: object) => new OutboundSettings(ClientQueueOptions.parse(given), '.');
  assert.throws(
    () => settings({ dane: true }),
    (error) =>
      isProblem(error) &&
      error.message.startsWith('plugins.client-queue.dane needs plugins.client-queue.resolver.servers: name servers'),
  );
  settings({ dane: true, resolver: { servers: ['127.0.0.1'] } });
  assert.equal(ClientQueueOptions.parse({}).dane, false);
});
