import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { simpleParser } from 'mailparser';
import { parseAddress } from '../../../../core/mime/address.js';
import {
  isTlsReport,
  reportAddresses,
  reportMail,
  reportUid,
  tlsReport,
} from '../../../../plugins/client-queue/tls-reports/report.js';

const contact = parseAddress('postmaster@example.org');
const report = tlsReport({
  day: '2026-03-01',
  domain: 'example.net',
  contact,
  hostname: 'mail.example.org',
  results: {
    sent: [],
    policies: [
      {
        type: 'sts',
        strings: ['version: STSv1', 'mode: testing', 'mx: *.example.net', 'max_age: 86400'],
        mx: ['*.example.net'],
        succeeded: 7,
        failures: [
          { result: 'certificate-expired', host: 'mx.example.net', address: '2001:db8::1', reason: 'CERT', count: 2 },
          { result: 'validation-failure', host: '', address: '', reason: '', count: 1 },
        ],
      },
      { type: 'no-policy-found', strings: [], mx: [], succeeded: 1, failures: [] },
    ],
  },
});

describe('the addresses that want reports', () => {
  const names = (...records: string[]) =>
    reportAddresses(records).map((one) => (one.kind === 'mailto' ? one.address.address : one.url.href));

  test('are those of the one record', () => {
    assert.deepEqual(names('v=TLSRPTv1; rua=mailto:tls%2Breports@example.net,https://tls.example.net:8443/v1?a=b;'), [
      'tls+reports@example.net',
      'https://tls.example.net:8443/v1?a=b',
    ]);
    assert.deepEqual(names('v=TLSRPTv1;rua=mailto:a@example.net?subject=x', 'v=spf1 -all'), ['a@example.net']);
  });

  test('are none where there are two records, or none that is valid', () => {
    assert.deepEqual(names('v=TLSRPTv1; rua=mailto:a@example.net', 'v=TLSRPTv1; rua=mailto:b@example.net'), []);
    assert.deepEqual(names('v=TLSRPTv2; rua=mailto:a@example.net'), []);
    for (const uri of [
      'http://example.net/',
      'mailto:',
      'mailto:%',
      'mailto:a@example.net%0d%0aBcc: x@example.org',
      'mailto:ü@example.net',
      'https://user:pass@example.net/',
      'file:///etc/passwd',
    ]) {
      assert.deepEqual(names(`v=TLSRPTv1; rua=${uri}`), [], uri);
    }
  });

  test('are four at most', () => {
    const many = Array.from({ length: 50 }, (_, n) => `mailto:a${n}@example.net`).join(',');
    assert.equal(names(`v=TLSRPTv1; rua=${many}`).length, 4);
  });
});

describe('a report about TLS', () => {
  test('has the form of RFC 8460 §4.4', () => {
    assert.equal(report.filename, 'mail.example.org!example.net!1772323200!1772409599.json.gz');
    assert.deepEqual(JSON.parse(gunzipSync(report.content).toString()), {
      'organization-name': 'example.org',
      'date-range': { 'start-datetime': '2026-03-01T00:00:00Z', 'end-datetime': '2026-03-01T23:59:59Z' },
      'contact-info': 'postmaster@example.org',
      'report-id': report.id,
      policies: [
        {
          policy: {
            'policy-type': 'sts',
            'policy-string': ['version: STSv1', 'mode: testing', 'mx: *.example.net', 'max_age: 86400'],
            'policy-domain': 'example.net',
            'mx-host': ['*.example.net'],
          },
          summary: { 'total-successful-session-count': 7, 'total-failure-session-count': 3 },
          'failure-details': [
            {
              'result-type': 'certificate-expired',
              'receiving-mx-hostname': 'mx.example.net',
              'receiving-ip': '2001:db8::1',
              'failed-session-count': 2,
              'failure-reason-code': 'CERT',
            },
            { 'result-type': 'validation-failure', 'failed-session-count': 1 },
          ],
        },
        {
          policy: { 'policy-type': 'no-policy-found', 'policy-domain': 'example.net' },
          summary: { 'total-successful-session-count': 1, 'total-failure-session-count': 0 },
        },
      ],
    });
  });

  test('goes by mail as RFC 8460 §5.3 says', async () => {
    const to = parseAddress('tls@example.net');
    const mail = await simpleParser(reportMail(report, contact, to, new Date(0)));
    assert.equal(mail.subject, `Report Domain: example.net Submitter: example.org Report-ID: <${report.id}>`);
    assert.equal(mail.headers.get('tls-report-domain'), 'example.net');
    assert.equal(mail.headers.get('tls-report-submitter'), 'example.org');
    const { value, params } = mail.headers.get('content-type') as unknown as { value: string; params: object };
    assert.equal(value, 'multipart/report');
    assert.equal((params as Record<string, string>)['report-type'], 'tlsrpt');
    const [attachment] = mail.attachments;
    assert.deepEqual([attachment?.contentType, attachment?.filename], ['application/tlsrpt+gzip', report.filename]);
    assert.deepEqual(attachment?.content, report.content);
    assert.ok(
      String(reportMail(report, contact, to, new Date(0)))
        .split('\r\n')
        .every((line) => line.length <= 998),
    );
  });

  test('has one id for each address, which no other message has', () => {
    const uidOf = (address: string, hostname = 'mx1.example.org') =>
      reportUid('2026-03-01', 'example.net', address, hostname);
    const uid = uidOf('a@example.net');
    assert.match(uid, /^[a-z0-9-]{1,64}$/);
    assert.equal(uid, uidOf('a@example.net'));
    assert.notEqual(uid, uidOf('b@example.net'));
    assert.notEqual(uid, uidOf('a@example.net', 'mx2.example.org'));
    assert.ok(isTlsReport({ uid }));
    assert.ok(!isTlsReport({ uid: '01k7m3v9q0000abcdefg' }));
  });
});
