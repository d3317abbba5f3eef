import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { clientFailure } from '../../../../core/smtp/client/failure.js';
import type { KeptPolicy } from '../../../../plugins/client-queue/mta-sts/policy.js';
import {
  type FoundPolicy,
  type ResultType,
  type TlsAgreement,
  TlsResults,
} from '../../../../plugins/client-queue/tls-reports/tls-results.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

const server = { host: 'mx.example.net', address: '192.0.2.1' };
const good = { protocol: 'TLSv1.3', cipher: 'x', verified: true, fault: null };
const fault = (code: string) => ({ ...good, verified: false, fault: code });
const refused = clientFailure({ kind: 'tls', step: 'starttls', code: 451, status: '4.7.4', text: 'not offered' });
const none: FoundPolicy = { policy: undefined, fault: undefined };
const policy: KeptPolicy = { id: 'a', mode: 'testing', mx: ['mx.example.net'], maxAge: 86_400, fetchedAt: 0 };
const record = { usage: 3, selector: 1, matching: 1, data: 'ab'.repeat(32) };
const underDane = (...records: (typeof record)[]): FoundPolicy => ({
  ...none,
  policy,
  dane: { base: 'mx.example.net', names: ['mx.example.net'], records },
});
const ofDane = (code: string) => {
  const cause = Object.assign(new Error(code), { code });
  return clientFailure({ kind: 'tls', step: 'starttls', code: 451, status: '4.7.5', text: 'refused', cause });
};
const sts: FoundPolicy = { policy, fault: undefined };

async function opened(t: TestContext, text?: string) {
  const file = join(await temporaryFolder(t), 'tls-results.json');
  if (text !== undefined) await writeFile(file, text);
  const clock = { time: Date.parse('2026-03-01T12:00:00Z'), now: () => clock.time, monotonic: () => 0 };
  const { log, sentences } = rememberingLog();
  const open = () => TlsResults.open(file, { clock, log });
  const tomorrow = (): void => void (clock.time += 86_400_000);
  return { results: await open(), open, tomorrow, clock, sentences };
}

describe('TLS of connections to other servers', () => {
  const cases: readonly (readonly [title: string, agreed: TlsAgreement, found: FoundPolicy, expected?: ResultType])[] =
    [
      ['no policy and TLS', fault('DEPTH_ZERO_SELF_SIGNED_CERT'), none],
      ['no policy and no TLS', undefined, none, 'starttls-not-supported'],
      ['a policy and a valid certificate', good, sts],
      ['a policy and no TLS', undefined, sts, 'starttls-not-supported'],
      ['a policy and TLS refused', refused, sts, 'starttls-not-supported'],
      ['an expired certificate', fault('CERT_HAS_EXPIRED'), sts, 'certificate-expired'],
      ['a certificate of another name', fault('ERR_TLS_CERT_ALTNAME_INVALID'), sts, 'certificate-host-mismatch'],
      ['a self-signed certificate', fault('DEPTH_ZERO_SELF_SIGNED_CERT'), sts, 'certificate-not-trusted'],
      ['another failure of TLS', fault('ERR_SSL_WRONG_VERSION_NUMBER'), sts, 'validation-failure'],
      [
        'a server that the policy leaves out',
        good,
        { ...sts, policy: { ...policy, mx: ['other.example'] } },
        'validation-failure',
      ],
      [
        'a policy that cannot be fetched',
        good,
        { policy: undefined, fault: 'sts-webpki-invalid' },
        'sts-webpki-invalid',
      ],
      ['a TLSA record that matches', good, underDane(record)],
      ['a TLSA record and no TLS', refused, underDane(record), 'starttls-not-supported'],
      ['a TLSA record of another key', ofDane('DANE_NO_MATCH'), underDane(record), 'certificate-not-trusted'],
      [
        'a TLSA record of an authority and another name',
        ofDane('ERR_TLS_CERT_ALTNAME_INVALID'),
        underDane(record),
        'certificate-host-mismatch',
      ],
      ['a TLSA record that cannot be used', good, underDane({ ...record, usage: 1 }), 'tlsa-invalid'],
      ['TLSA records that cannot be looked up', ofDane('DNSSEC_INVALID'), underDane(), 'dnssec-invalid'],
      ['a policy that is withdrawn', fault('CERT_HAS_EXPIRED'), { ...sts, policy: { ...policy, mode: 'none' } }],
    ];
  for (const [title, agreed, found, expected] of cases) {
    test(`with ${title} counts as ${expected ?? 'success'}`, async (t) => {
      const { results, tomorrow } = await opened(t);
      results.record('example.net', server, agreed, found);
      results.record('example.net', server, agreed, found);
      tomorrow();
      const [row] = results.finished();
      assert.deepEqual([row?.[0], row?.[1], row?.[2].policies.length], ['2026-03-01', 'example.net', 1]);
      const counted = row?.[2].policies[0];
      const isSts = found !== none && (found.policy?.mode ?? 'testing') !== 'none';
      assert.equal(counted?.type, found.dane !== undefined ? 'tlsa' : isSts ? 'sts' : 'no-policy-found');
      if (found.dane?.records[0] === record) assert.deepEqual(counted?.strings, [`3 1 1 ${record.data}`]);
      assert.equal(counted?.succeeded, expected === undefined ? 2 : 0);
      assert.deepEqual(
        counted?.failures.map(({ result, host, address, count }) => [result, host, address, count]),
        expected === undefined ? [] : [[expected, 'mx.example.net', '192.0.2.1', 2]],
      );
    });
  }

  test('is reported about when its day is over, and is kept on the disk until then', async (t) => {
    const { results, open, tomorrow } = await opened(t);
    results.record('example.net', server, good, sts);
    assert.deepEqual(results.finished(), []);
    await results.save();
    tomorrow();
    const again = await open();
    assert.deepEqual(again.finished(), results.finished());
    assert.deepEqual(again.finished()[0]?.[2].policies[0]?.strings, [
      'version: STSv1',
      'mode: testing',
      'mx: mx.example.net',
      'max_age: 86400',
    ]);
    await again.sent('2026-03-01', 'example.net', 'tls@example.net');
    assert.deepEqual((await open()).finished()[0]?.[2].sent, ['tls@example.net']);
    again.remove('2026-03-01', 'example.net');
    await again.save();
    assert.deepEqual((await open()).finished(), []);
  });

  test('is bounded: by domains, by policies of a domain, by kinds of failure', async (t) => {
    const { results, tomorrow } = await opened(t);
    for (let n = 0; n < 100; n += 1) {
      const address = `192.0.2.${n}`;
      results.record('example.net', { host: `mx${n}.example.net`, address }, undefined, none);
      results.record('example.org', server, good, { ...sts, policy: { ...policy, maxAge: 10_000 + n } });
    }
    for (let n = 0; n < 10_100; n += 1) results.record(`d${n}.example`, server, good, none);
    tomorrow();
    const days = results.finished();
    assert.equal(days.length, 10_000);
    const [net, org] = days.map(([, , { policies }]) => policies);
    assert.equal(net?.[0]?.failures.length, 31);
    assert.equal(
      net?.[0]?.failures.reduce((sum, { count }) => sum + count, 0),
      100,
    );
    assert.equal(org?.length, 5);
  });

  test('begins anew when its file is damaged, and says so', async (t) => {
    const { results, sentences } = await opened(t, '{"days": {"2026-03-01": 5}}');
    assert.deepEqual(results.finished(), []);
    assert.ok(sentences.includes('the counts for TLS reports cannot be read, and begin anew'), sentences.join());
  });
});
