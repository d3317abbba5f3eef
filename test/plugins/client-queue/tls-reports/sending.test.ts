import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import type { Submission } from '../../../../core/contracts/submission.js';
import { dkimText } from '../../../../core/dns/mail-zone.js';
import { problem } from '../../../../core/problem.js';
import { ClientQueueOptions } from '../../../../plugins/client-queue/options.js';
import { TlsReporter } from '../../../../plugins/client-queue/tls-reports/reporter.js';
import { type TlsAgreement, TlsResults } from '../../../../plugins/client-queue/tls-reports/tls-results.js';
import { FixedResolver } from '../../../core/dns/fixed-resolver.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { selfSigned } from '../../../support/certificate.js';
import { DnsServer } from '../../../support/dns-server.js';
import { atEnd } from '../../../support/ending.js';
import { startInProcess } from '../../../support/in-process-server.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { until } from '../../../support/until.js';
import { outboundFixture } from '../outbound-fixture.js';

const domain = 'example.net';
const hourMs = 3_600_000;

interface Given {
  readonly record?: string;
  readonly signs?: boolean;
  readonly submit?: () => Promise<void>;
  readonly ca?: string;
}

/** A reporter with the results of a day that ended 12 hours ago. */
async function reporting(t: TestContext, { record, signs = true, submit, ca }: Given) {
  const clock = { time: Date.parse('2026-03-01T12:00:00Z'), now: () => clock.time, monotonic: () => clock.time };
  const { log, sentences } = rememberingLog();
  const results = await TlsResults.open(join(await temporaryFolder(t), 'tls-results.json'), { clock, log });
  results.record(domain, { host: 'mx.example.net', address: '192.0.2.1' }, undefined, {
    policy: undefined,
    fault: undefined,
  });
  clock.time += 24 * hourMs;
  const resolver = new FixedResolver({
    [`_smtp._tls.${domain}`]: record === undefined ? {} : { txt: [record] },
    'tls.example.net': { a: ['127.0.0.1'] },
  });
  const settings = ClientQueueOptions.parse({ tlsReports: { send: true }, allowPrivateAddresses: true });
  const given = { settings };
  const submissions: Submission[] = [];
  const reporter = new TlsReporter({
    results,
    submission: {
      submit: async (submission) => {
        submissions.push(submission);
        await submit?.();
        return { id: '', recipients: [] };
      },
    },
    resolver: () => resolver,
    settings: () => given.settings,
    hostname: 'mail.example.org',
    domain: () => 'example.org',
    signs: () => signs,
    clock,
    log,
    ...(ca !== undefined && { ca }),
  });
  return { reporter, results, submissions, clock, sentences, resolver, given };
}

describe('reports about TLS', () => {
  test('go to the address that the domain names, once', async (t) => {
    const { reporter, results, submissions } = await reporting(t, { record: 'v=TLSRPTv1; rua=mailto:tls@example.net' });
    await reporter.run();
    assert.deepEqual(
      submissions.map(({ recipients, reversePath }) => [recipients[0]?.address, reversePath?.address]),
      [['tls@example.net', 'postmaster@example.org']],
    );
    assert.deepEqual(results.finished(), []);
    await reporter.run();
    assert.equal(submissions.length, 1);
  });

  test('are not sent to a domain that wants none, nor when they are switched off', async (t) => {
    const silent = await reporting(t, {});
    await silent.reporter.run();
    assert.deepEqual([silent.submissions.length, silent.results.finished().length], [0, 0]);
    const off = await reporting(t, { record: 'v=TLSRPTv1; rua=mailto:tls@example.net' });
    off.given.settings = ClientQueueOptions.parse({});
    await off.reporter.run();
    assert.deepEqual([off.submissions.length, off.results.finished().length], [0, 0]);
  });

  test('wait until some time after midnight, each domain its own', async (t) => {
    const { reporter, submissions, clock } = await reporting(t, { record: 'v=TLSRPTv1; rua=mailto:tls@example.net' });
    clock.time -= 12 * hourMs;
    await reporter.run();
    assert.equal(submissions.length, 0);
    clock.time += 4 * hourMs;
    await reporter.run();
    assert.equal(submissions.length, 1);
  });

  test('are tried again for two days, with the same id, and then dropped', async (t) => {
    let failures = 2;
    const { reporter, results, submissions, clock, sentences } = await reporting(t, {
      record: 'v=TLSRPTv1; rua=mailto:tls@example.net',
      submit: () => (failures-- > 0 ? Promise.reject(problem('unavailable')) : Promise.resolve()),
    });
    await reporter.run();
    await reporter.run();
    assert.equal(submissions.length, 1);
    assert.ok(sentences.includes('a TLS report could not be sent'));
    for (let n = 0; n < 2; n += 1) {
      clock.time += hourMs;
      await reporter.run();
    }
    assert.equal(submissions.length, 3);
    assert.equal(new Set(submissions.map(({ id }) => id)).size, 1);
    assert.deepEqual(results.finished(), []);

    const dead = await reporting(t, {
      record: 'v=TLSRPTv1; rua=mailto:tls@example.net',
      submit: () => Promise.reject(problem('unavailable')),
    });
    await dead.reporter.run();
    assert.equal(dead.results.finished().length, 1);
    dead.clock.time += 48 * hourMs;
    await dead.reporter.run();
    assert.deepEqual([dead.submissions.length, dead.results.finished().length], [1, 0]);
  });

  test('wait while the DNS does not answer', async (t) => {
    const { reporter, results, resolver } = await reporting(t, {});
    resolver.names[`_smtp._tls.${domain}`] = { txt: 'servfail' };
    await reporter.run();
    assert.equal(results.finished().length, 1);
  });

  test('do not go by mail without a key to sign them, and health says so', async (t) => {
    const { reporter, submissions } = await reporting(t, {
      record: 'v=TLSRPTv1; rua=mailto:tls@example.net',
      signs: false,
    });
    await reporter.run();
    assert.equal(submissions.length, 0);
    assert.equal(reporter.health().status, 'degraded');
  });

  test('go by https to a host with a valid certificate, and again when it refuses them', async (t) => {
    const pair = selfSigned('tls.example.net');
    const got: { readonly type: string | undefined; readonly host: string | undefined; readonly body: Buffer }[] = [];
    let status = 500;
    const server = createServer(pair, (request, response) => {
      void (async () => {
        const body = await buffer(request);
        got.push({ type: request.headers['content-type'], host: request.headers.host, body });
        response.writeHead(status).end();
      })();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    atEnd(t, () => {
      server.closeAllConnections();
      server.close();
    });
    const { port } = server.address() as AddressInfo;
    const record = `v=TLSRPTv1; rua=https://tls.example.net:${port}/v1`;
    const stranger = await reporting(t, { record });
    await stranger.reporter.run();
    assert.deepEqual([got.length, stranger.results.finished().length], [0, 1]);

    const { reporter, results, clock, given } = await reporting(t, { record, ca: pair.cert });
    await reporter.run();
    assert.deepEqual([got.length, results.finished().length], [1, 1]);
    status = 201;
    clock.time += hourMs;
    given.settings = ClientQueueOptions.parse({ tlsReports: { send: true } });
    await reporter.run();
    assert.equal(got.length, 1, 'a private address is not called');
    clock.time += hourMs;
    given.settings = ClientQueueOptions.parse({ tlsReports: { send: true }, allowPrivateAddresses: true });
    await reporter.run();
    assert.deepEqual([got.length, results.finished().length], [2, 0]);
    assert.deepEqual([got[1]?.type, got[1]?.host], ['application/tlsrpt+gzip', `tls.example.net:${port}`]);
    const json = JSON.parse(gunzipSync(got[1]?.body ?? '').toString()) as Record<string, unknown>;
    assert.equal(json['organization-name'], 'example.org');
  });
});

describe('the connections that are counted', () => {
  const counting = async (t: TestContext, script: Parameters<typeof SmtpSink.start>[1]) => {
    const sink = await SmtpSink.start(t, script);
    const counted: { readonly domain: string; readonly host: string | undefined; readonly agreed: TlsAgreement }[] = [];
    const fixture = await outboundFixture(t, {
      options: { port: sink.port, tls: 'opportunistic' },
      tlsResult: (name, { host }, agreed) => counted.push({ domain: name, host, agreed }),
    });
    return { ...fixture, sink, counted };
  };

  test('are new ones, with the fault of their certificate', async (t) => {
    const { delivered, enqueue, tried, counted } = await counting(t, { tls: selfSigned('mx.example.net') });
    await delivered({ to: ['bob@example.net'] });
    await tried(await enqueue({ to: ['bob@example.net'] }));
    assert.equal(counted.length, 1);
    const agreed = counted[0]?.agreed;
    assert.ok(agreed !== undefined && 'fault' in agreed);
    assert.deepEqual([counted[0]?.domain, agreed.fault], ['example.net', 'DEPTH_ZERO_SELF_SIGNED_CERT']);
  });

  test('stay in clear text where TLS is not offered, or fails', async (t) => {
    const none = await counting(t, {});
    await none.delivered({ to: ['bob@example.net'] });
    assert.deepEqual(
      none.counted.map(({ agreed }) => agreed),
      [undefined],
    );
    const broken = await counting(t, { tls: selfSigned('x'), steps: { starttls: [{ close: '220 go' }, undefined] } });
    await broken.delivered({ to: ['bob@example.net'] });
    assert.equal(broken.sink.messages.length, 1);
    const agreed = broken.counted[0]?.agreed;
    assert.ok(agreed !== undefined && 'kind' in agreed);
    assert.equal(agreed.step, 'starttls');
  });

  test('are not those of a report', async (t) => {
    const { enqueue, outbound, queue, counted, entryWhen } = await counting(t, {});
    const uid = 'tls-report-20260301-0123456789abcdef01234567';
    await enqueue({ to: ['tls@example.net'], entry: { uid } });
    await outbound.start();
    await entryWhen(uid, ({ state }) => state === 'delivered');
    assert.equal((await queue.find(uid))?.state, 'delivered');
    assert.deepEqual(counted, []);
  });
});

test('a report leaves the server signed, although its domain demands TLS that fails', async (t) => {
  const sink = await SmtpSink.start(t, {});
  const dns = await DnsServer.start(t, {
    [domain]: { MX: [[10, 'mx.example.net']] },
    'mx.example.net': { A: ['127.0.0.1'] },
    [`_smtp._tls.${domain}`]: { TXT: [`v=TLSRPTv1; rua=mailto:tls@${domain}`] },
  });
  const { privateKey } = generateKeyPairSync('ed25519');
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const client = {
    port: sink.port,
    allowPrivateAddresses: true,
    resolver: { servers: [dns.address] },
    dkim: { 'example.org': { selector: 's1', key: 'key.pem' } },
    tlsReports: { send: true },
  };
  const config = {
    hostname: 'mail.example.org',
    domains: ['example.org'],
    smtp: { listeners: [{ mode: 'mx', port: 0 }] },
    plugins: { 'client-queue': client },
  };
  const day = new Date(Date.now() - 48 * hourMs).toISOString().slice(0, 10);
  const counted = { type: 'no-policy-found', strings: [], mx: [], succeeded: 3, failures: [] };
  const policy = { id: 'one', mode: 'enforce', mx: ['mx.example.net'], maxAge: 86_400, fetchedAt: Date.now() };
  const site = await startInProcess(t, JSON.stringify(config), {}, async (folder) => {
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    await writeFile(join(folder, 'key.pem'), pem);
    await writeFile(join(folder, 'data', 'mta-sts.json'), JSON.stringify({ policies: { [domain]: policy } }));
    const days = { [day]: { [domain]: { policies: [counted] } } };
    await writeFile(join(folder, 'data', 'tls-results.json'), JSON.stringify({ days }));
  });
  const mail = await until('the report', () => Promise.resolve(sink.messages[0]));
  assert.deepEqual([mail.recipients, mail.sender], [['tls@example.net'], 'postmaster@example.org']);
  const text = dkimText(pem);
  const { results } = await dkimVerify(mail.text, { resolver: () => Promise.resolve([[text]]) });
  assert.deepEqual(
    results.map(({ signingDomain, status }) => [signingDomain, status.result]),
    [['example.org', 'pass']],
  );
  await until('the end of the report', async () => {
    const stored = await readFile(join(site.folder, 'data', 'tls-results.json'), 'utf8');
    return stored === '{"days":{}}\n' ? true : undefined;
  });
});
