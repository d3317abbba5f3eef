import assert from 'node:assert/strict';
import { createHash, X509Certificate } from 'node:crypto';
import { describe, test, type TestContext } from 'node:test';
import { mtaStsRecord } from '../../../../core/dns/mail-zone.js';
import { StsPolicyOptions, stsPolicyText } from '../../../../core/dns/mta-sts.js';
import { selfSigned } from '../../../support/certificate.js';
import { type DnsName, DnsServer, type Zone } from '../../../support/dns-server.js';
import { Examined } from '../examined.js';

const config = `{
  hostname: 'mail.acme.org', domains: ['acme.org'],
  smtp: { listeners: [{ host: '0.0.0.0', port: 0 }] },
}`;

const healthy: Zone = {
  'mail.acme.org': { A: ['93.184.216.34'] },
  '34.216.184.93.in-addr.arpa': { PTR: ['mail.acme.org'] },
  'acme.org': { MX: [[10, 'mail.acme.org']], TXT: ['v=spf1 mx -all', 'something else'] },
  '_dmarc.acme.org': { TXT: ['v=DMARC1; p=reject; rua=mailto:postmaster@acme.org'] },
};

const found = async (t: TestContext, zone: Zone, text = config) => (await Examined.of(t, text, { zone })).of('dns');

/** Fails unless one of the findings fits. */
function has(findings: readonly string[], pattern: RegExp): void {
  assert.ok(
    findings.some((finding) => pattern.test(finding)),
    `no ${pattern} in:\n${findings.join('\n')}`,
  );
}

describe('what the doctor finds in the DNS', { concurrency: 4 }, () => {
  test('records that are as they should be', async (t) => {
    const findings = await found(t, healthy);
    assert.deepEqual(
      findings.filter((finding) => finding.startsWith('problem')),
      [],
    );
    has(findings, /^ok: 93\.184\.216\.34 is called mail\.acme\.org, and back/);
    has(findings, /^ok: Mail for acme\.org comes here/);
    has(findings, /^ok: The SPF record of acme\.org lets this server send/);
    has(findings, /^ok: acme\.org has a DMARC record \(policy reject\)/);
    has(
      findings,
      /^advice: mail\.acme\.org \(hostname\) has the address 93\.184\.216\.34, and no interface here has it/,
    );
  });

  test('a server without outside access needs no record', async (t) => {
    const findings = await found(t, {}, `{ domains: ['acme.org'] }`);
    assert.deepEqual(findings.length, 1);
    has(
      findings,
      /^skipped: Every SMTP listener is for this machine only: records that lead mail here are not looked at/,
    );
  });

  test('an invalid hostname, and one without an address', async (t) => {
    has(
      await found(t, healthy, config.replace('mail.acme.org', 'mailhost')),
      /^problem: mailhost \(hostname\) is no name/,
    );
    has(
      await found(t, { ...healthy, 'mail.acme.org': {} }),
      /^problem: mail\.acme\.org \(hostname\) has no address.*→ Add an A or AAAA record/,
    );
  });

  test('a PTR record that is missing, or names another', async (t) => {
    const { '34.216.184.93.in-addr.arpa': _, ...without } = healthy;
    has(await found(t, without), /^problem: 93\.184\.216\.34 has no name \(PTR record\).*→ Ask whoever gave you/);
    const other = { ...healthy, '34.216.184.93.in-addr.arpa': { PTR: ['host-34.provider.net'] } };
    has(await found(t, other), /^advice: 93\.184\.216\.34 is called host-34\.provider\.net, not mail\.acme\.org/);
  });

  test('mail for the domain that goes elsewhere, nowhere, or by its address only', async (t) => {
    const domain = (change: Zone[string]): Zone => ({
      ...healthy,
      'acme.org': { TXT: ['v=spf1 a:mail.acme.org -all'], ...change },
    });
    has(
      await found(t, domain({ MX: [[10, 'mx.provider.net']] })),
      /^advice: Mail for acme\.org goes to mx\.provider\.net \(MX\)/,
    );
    has(await found(t, domain({ MX: [[0, '.']] })), /^problem: acme\.org says that it takes no mail \(null MX/);
    has(
      await found(t, domain({ A: ['93.184.216.34'] })),
      /^advice: acme\.org has no MX record; its address leads here/,
    );
    has(await found(t, domain({ A: ['192.0.2.9'] })), /^problem: acme\.org has no MX record, and its address does not/);
    const { 'acme.org': _, ...gone } = healthy;
    const findings = await found(t, gone);
    has(findings, /^problem: The domain acme\.org does not exist/);
    assert.ok(!findings.some((finding) => /SPF|DMARC/.test(finding)));
  });

  test('SPF and DMARC that are missing, doubled, or wrong for this server', async (t) => {
    const txt = (...TXT: readonly string[]): Zone => ({ ...healthy, 'acme.org': { MX: [[10, 'mail.acme.org']], TXT } });
    has(await found(t, txt()), /^advice: acme\.org has no SPF record/);
    has(await found(t, txt('v=spf1 mx -all', 'v=spf1 a -all')), /^problem: acme\.org has 2 SPF records/);
    has(
      await found(t, txt('v=spf1 ip4:192.0.2.1 -all')),
      /^problem: The SPF record of acme\.org does not name this server: 93\.184\.216\.34 \(fail\)/,
    );
    const { '_dmarc.acme.org': _, ...without } = healthy;
    has(await found(t, without), /^advice: acme\.org has no DMARC record/);
    has(
      await found(t, { ...healthy, '_dmarc.acme.org': { TXT: ['v=DMARC1; p=all'] } }),
      /^problem: The DMARC record of acme\.org cannot/,
    );
  });

  test('MTA-STS and TLS-RPT that are there, missing, or cannot be understood, with the line to put', async (t) => {
    const zone = (sts: string, rpt: string): Zone => ({
      ...healthy,
      '_mta-sts.acme.org': { TXT: [sts] },
      '_smtp._tls.acme.org': { TXT: [rpt] },
    });
    const good = await found(t, zone('v=STSv1; id=2026a;', 'v=TLSRPTv1; rua=https://reports.acme.org/tls'));
    has(good, /^advice: The MTA-STS record _mta-sts\.acme\.org has not the id of the policy of this server/);
    has(good, /^ok: The TLS-RPT record _smtp\._tls\.acme\.org is there/);
    const missing = await found(t, healthy);
    has(
      missing,
      /^advice: There is no MTA-STS record .* → Add the record _mta-sts\.acme\.org\. IN TXT "v=STSv1; id=\w+"$/,
    );
    has(
      missing,
      /^advice: .* → Add the record _smtp\._tls\.acme\.org\. IN TXT "v=TLSRPTv1; rua=mailto:postmaster@acme\.org"$/,
    );
    const broken = await found(t, zone('v=STSv1; id=', 'v=TLSRPTv1; rua=postmaster'));
    has(broken, /^problem: The MTA-STS record _mta-sts\.acme\.org cannot be understood.*Let there be one: _mta-sts/);
    has(broken, /^problem: The TLS-RPT record _smtp\._tls\.acme\.org cannot be understood/);
  });

  test('name servers that do not answer: one problem, not ten', async (t) => {
    const silent: Zone = { 'acme.org': { silent: true } };
    const findings = (await Examined.of(t, config, { zone: silent, timeoutMs: 300 })).of('dns');
    assert.equal(findings.length, 1);
    has(
      findings,
      /^problem: The name servers do not answer in time when they are asked for acme\.org.*\/etc\/resolv\.conf/,
    );
    const named = `${config.slice(0, -1)} dns: { servers: ['127.0.0.1:9'] } }`;
    has(
      (await Examined.of(t, named, { zone: silent, timeoutMs: 300 })).of('dns'),
      /→ Look at dns\.servers \(127\.0\.0\.1:9\)/,
    );
  });

  test('what a record holds moves no cursor and shows no secret', async (t) => {
    const zone: Zone = { ...healthy, '34.216.184.93.in-addr.arpa': { PTR: ['a\u001B[2Jb.provider.net'] } };
    assert.ok((await found(t, zone)).every((finding) => !finding.includes('\u001B')));
  });
});

describe('what the doctor finds of the MTA-STS policy', { concurrency: 4 }, () => {
  const policed = (policy: object | false, more: Zone = {}, http: object = {}): readonly [zone: Zone, text: string] => {
    const { value } = mtaStsRecord(
      'acme.org',
      stsPolicyText(StsPolicyOptions.parse(policy === false ? {} : policy), 'mail.acme.org'),
    );
    const text = { hostname: 'mail.acme.org', domains: ['acme.org'], http, plugins: { 'mta-sts': policy } };
    const zone = { ...healthy, '_mta-sts.acme.org': { TXT: [value] }, 'mta-sts.acme.org': { A: ['93.184.216.34'] } };
    return [{ ...zone, ...more }, JSON.stringify({ ...text, smtp: { listeners: [{ host: '0.0.0.0', port: 0 }] } })];
  };

  test('a record that agrees with it, and one of another policy', async (t) => {
    const [zone, text] = policed({ mode: 'enforce' });
    const good = await found(t, zone, text);
    has(good, /^ok: The MTA-STS record _mta-sts\.acme\.org is there, with the id of the policy of this server/);
    has(good, /^skipped: Whether https:\/\/mta-sts\.acme\.org answers is not known/);
    assert.ok(good.every((finding) => !/does not name/.test(finding)));
    const [, changed] = policed({ mode: 'testing' });
    has(await found(t, zone, changed), /^advice: .* has not the id .* → Replace it by _mta-sts\.acme\.org\. IN TXT/);
  });

  test('a host without an address, and a server that the policy leaves out', async (t) => {
    const mx = { 'acme.org': { MX: [[10, 'mail.acme.org'] as const, [20, 'mx.provider.net'] as const] } };
    const [zone, text] = policed({ mode: 'enforce' }, { ...mx, 'mta-sts.acme.org': {} });
    const findings = await found(t, zone, text);
    has(findings, /^problem: mta-sts\.acme\.org has no address.*→ Add the record mta-sts\.acme\.org\. IN CNAME mail\./);
    has(findings, /^problem: The MTA-STS policy does not name mx\.provider\.net, to which the MX records of acme\.org/);
    const all = policed({ mode: 'enforce', mx: ['mail.acme.org', '*.provider.net'] }, mx);
    assert.ok((await found(t, ...all)).every((finding) => !/does not name/.test(finding)));
  });

  test('an HTTPS listener with and without a certificate for the host', async (t) => {
    const https = (name: string) => ({ https: { host: '127.0.0.1', port: 0, ...selfSigned(name) } });
    has(
      await found(t, ...policed({}, {}, https('mta-sts.acme.org'))),
      /^ok: The HTTPS listener has a certificate for mta-sts\.acme\.org/,
    );
    for (const http of [https('mail.acme.org'), { https: { host: '127.0.0.1', port: 0 } }]) {
      has(
        await found(t, ...policed({}, {}, http)),
        /^problem: The HTTPS listener has no certificate for mta-sts\.acme\.org/,
      );
    }
  });

  test('that it is off: a record of another server is valid, and none is no fault', async (t) => {
    has(await found(t, ...policed(false)), /^ok: The MTA-STS record _mta-sts\.acme\.org is there\./);
    has(await found(t, ...policed(false, { '_mta-sts.acme.org': {} })), /^skipped: MTA-STS is off/);
  });
});

describe('what the doctor finds of TLSA records of this server', { concurrency: 4 }, () => {
  const pair = selfSigned('mail.acme.org');
  const digest = createHash('sha256')
    .update(new X509Certificate(pair.cert).publicKey.export({ type: 'spki', format: 'der' }))
    .digest('hex');
  const withRecords = async (t: TestContext, records: DnsName | undefined): Promise<readonly string[]> => {
    const zone = records === undefined ? {} : { '_25._tcp.mail.acme.org': records };
    const { address } = await DnsServer.start(t, zone);
    const text = JSON.stringify({
      hostname: 'mail.acme.org',
      domains: ['acme.org'],
      smtp: { listeners: [{ host: '0.0.0.0', port: 0, mode: 'mx', tls: 'starttls', ...pair }] },
      plugins: { 'client-queue': { resolver: { servers: [address] } } },
    });
    return (await found(t, healthy, text)).filter((finding) => finding.includes('TLSA'));
  };

  test('that they fit the certificate, or not, with the record to publish', async (t) => {
    has(
      await withRecords(t, { TLSA: [`3 1 1 ${digest}`], secure: true }),
      /^ok: 1 TLSA record _25\._tcp\.mail\.acme\.org: the certificate of this server matches/,
    );
    const [wrong = ''] = await withRecords(t, { TLSA: [`3 1 1 ${'00'.repeat(32)}`], secure: true });
    assert.match(wrong, /^problem: .* do not fit the certificate of this server: The certificate matches none/);
    assert.ok(wrong.endsWith(`→ Publish: _25._tcp.mail.acme.org. IN TLSA 3 1 1 ${digest}`), wrong);
  });

  test('that nobody obeys them, or that they cannot be looked up; and nothing without records', async (t) => {
    has(await withRecords(t, { TLSA: [`3 1 1 ${digest}`] }), /^advice: .* are not validated \(DNSSEC\)/);
    has(await withRecords(t, { TLSA: [`1 1 1 ${digest}`], secure: true }), /^advice: None of the TLSA records/);
    has(await withRecords(t, { rcode: 'SERVFAIL' }), /^problem: .* cannot be looked up \(servfail\)/);
    assert.deepEqual(await withRecords(t, undefined), []);
  });
});
