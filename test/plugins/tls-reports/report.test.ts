import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { readReport } from '../../../plugins/tls-reports/report.js';

const report = (policies: readonly object[], more: object = {}) => ({
  'organization-name': 'Company-X',
  'date-range': { 'start-datetime': '2026-03-01T00:00:00Z', 'end-datetime': '2026-03-01T23:59:59Z' },
  'contact-info': 'sts-reporting@company-x.example',
  'report-id': 'abc',
  policies,
  ...more,
});
const policy = (domain: string, succeeded: number, failed: number, details: unknown = null) => ({
  policy: { 'policy-type': 'sts', 'policy-domain': domain, 'policy-string': ['version: STSv1'] },
  summary: { 'total-successful-session-count': succeeded, 'total-failure-session-count': failed },
  'failure-details': details,
});
const packed = (value: unknown) => readReport(gzipSync(JSON.stringify(value)), true);

describe('a report of another server', () => {
  test('is read as one row for each policy domain, with the most frequent failures', async () => {
    const details = [
      { 'result-type': 'certificate-expired', 'failed-session-count': 2, 'receiving-mx-hostname': 'mx1.example.org' },
      { 'result-type': 'starttls-not-supported', 'failed-session-count': '9', 'failure-reason-code': 'x' },
    ];
    const rows = await packed(
      report([policy('Example.org.', 10, 11, details), policy('example.net', 1, 0), policy('example.org', 5, 0)]),
    );
    const about = {
      id: 'abc',
      organization: 'Company-X',
      from: '2026-03-01T00:00:00.000Z',
      to: '2026-03-01T23:59:59.000Z',
    };
    assert.deepEqual(rows, [
      {
        ...about,
        domain: 'example.org',
        succeeded: 15,
        failed: 11,
        failures: [
          { result: 'starttls-not-supported', host: '', reason: 'x', count: 9 },
          { result: 'certificate-expired', host: 'mx1.example.org', reason: '', count: 2 },
        ],
      },
      { ...about, domain: 'example.net', succeeded: 1, failed: 0, failures: [] },
    ]);
    assert.equal((await readReport(Buffer.from(JSON.stringify(report([policy('a', 1, 0)]))), false)).length, 1);
  });

  test('may be a bomb: it is unpacked up to a bound', async () => {
    await assert.rejects(readReport(gzipSync(Buffer.alloc(100_000_000)), true), { code: 'ERR_BUFFER_TOO_LARGE' });
    await assert.rejects(readReport(Buffer.alloc(3_000_000, ' '), false), /more than 2097152 bytes/);
  });

  test('is refused when it is no report', async () => {
    for (const value of [
      null,
      [],
      {},
      report([policy('a', -1, 0)]),
      report([policy('a', 1, Number.MAX_VALUE)]),
      report([], { 'date-range': { 'start-datetime': 'x', 'end-datetime': 'y' } }),
      report(Array.from({ length: 1001 }, () => policy('a', 1, 0))),
    ]) {
      await assert.rejects(packed(value), JSON.stringify(value).slice(0, 100));
    }
    await assert.rejects(readReport(Buffer.from('no gzip'), true));
    await assert.rejects(readReport(gzipSync('{"a": '), true));
    await assert.rejects(readReport(gzipSync(Buffer.from([0x22, 0xff, 0x22])), true));
  });

  test('has text that is cut, and moves no cursor', async () => {
    const [row] = await packed(
      report([policy('example.org', 1, 0)], { 'organization-name': `a\u001b[2J\u202eb${'c'.repeat(1000)}` }),
    );
    assert.match(row?.organization ?? '', /^a \[2J bc+$/);
    assert.equal(row?.organization.length, 300);
    const many = Array.from({ length: 500 }, (_, n) => ({ 'result-type': `t${n}`, 'failed-session-count': n }));
    assert.equal((await packed(report([policy('example.org', 1, 5, many)])))[0]?.failures.length, 20);
  });
});
