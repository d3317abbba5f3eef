import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { DnsServer } from '../../support/dns-server.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { queueCheck, resolverCheck } from '../../../plugins/client-queue/doctor-checks.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import { Examined } from '../doctor/examined.js';
import { SystemResolver } from '../../../core/dns/system-resolver.js';

async function signed(t: TestContext, privateKey: KeyObject, TXT: readonly string[] | undefined, mode = 0o600) {
  const folder = await temporaryFolder(t);
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });
  await writeFile(join(folder, 'dkim.pem'), pem, { mode });
  const config = `{ domains: ['acme.org', 'other.org'], http: { port: 0 }, smtp: { listeners: [{ port: 0 }] },
    plugins: { 'client-queue': { dkim: { 'acme.org': { selector: 's1', key: 'dkim.pem' } } } } }`;
  const zone = TXT === undefined ? {} : { 's1._domainkey.acme.org': { TXT } };
  const examined = await Examined.of(t, config, { folder, zone });
  assert.ok(!JSON.stringify(examined.findings).includes('PRIVATE'));
  return examined.of('dkim');
}

describe('what the doctor finds of mail that goes out', () => {
  test('a DKIM key that is published, is not, or is another', async (t) => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const raw = Buffer.from(publicKey.export({ format: 'jwk' }).x ?? '', 'base64url').toString('base64');
    const [right, unsigned] = await signed(t, privateKey, [`v=DKIM1; k=ed25519; p=${raw}`]);
    assert.match(right ?? '', /^ok: The DKIM key of acme\.org is the one that s1\._domainkey\.acme\.org publishes/);
    assert.match(unsigned ?? '', /^advice: Mail from other\.org is not signed/);
    const [missing = ''] = await signed(t, privateKey, undefined);
    assert.ok(missing.startsWith('problem: The DKIM key of acme.org is not published'));
    assert.ok(missing.endsWith(`→ Publish: s1._domainkey.acme.org. IN TXT "v=DKIM1; k=ed25519; p=${raw}"`), missing);
    const [other] = await signed(t, generateKeyPairSync('ed25519').privateKey, [`v=DKIM1; k=ed25519; p=${raw}`]);
    assert.match(other ?? '', /^problem: s1\._domainkey\.acme\.org publishes another DKIM key/);
  });

  test('an RSA key, in a file that everybody may read', async (t) => {
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 1024 });
    const der = publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
    const [file, record] = await signed(t, privateKey, [`v=DKIM1; p=${der}`], 0o644);
    assert.match(file ?? '', /^problem: Everybody on this machine may read the DKIM key .* → chmod o-rwx/);
    assert.match(record ?? '', /^ok: /);
  });

  test('name servers that the queue has to itself: each is asked', async (t) => {
    const answering = await DnsServer.start(t, { 'acme.org': { MX: [[10, 'mx.acme.org']] } });
    const knowing = await DnsServer.start(t, {});
    const broken = await DnsServer.start(t, { 'acme.org': { rcode: 'SERVFAIL' } });
    const look = async (servers: readonly string[] | undefined, domains = ['localhost', 'acme.org']) =>
      (
        await resolverCheck.run({
          options: ClientQueueOptions.parse({ resolver: { servers } }),
          configuration: { hostname: 'mail', data: '/', folder: '/', domains },
          owner: undefined,
          resolver: new SystemResolver(),
          clock: new HandClock(),
          signal: new AbortController().signal,
        })
      ).map(({ state }) => state);
    assert.deepEqual(await look([answering, knowing, broken].map(({ address }) => address)), ['ok', 'ok', 'problem']);
    assert.deepEqual(await look([answering.address], ['localhost']), ['skipped']);
    assert.deepEqual(await look(undefined), []);
  });

  test('name servers that DANE trusts: whether they validate', async (t) => {
    const { address: validating } = await DnsServer.start(t, { '': { secure: true } });
    const { address: plain } = await DnsServer.start(t, { '': {} });
    const findings = await resolverCheck.run({
      options: ClientQueueOptions.parse({ dane: true, resolver: { servers: [validating, plain] } }),
      configuration: { hostname: 'mail', data: '/', folder: '/', domains: ['acme.org'] },
      owner: undefined,
      resolver: new SystemResolver(),
      clock: new HandClock(),
      signal: new AbortController().signal,
    });
    const [good, bad] = findings.map(({ state, is }) => `${state}: ${is}`);
    assert.match(good ?? '', /^ok: The name server 127\.0\.0\.1:\d+, .* answers and validates \(DNSSEC\)\.$/);
    assert.match(bad ?? '', /^problem: The name server 127\.0\.0\.1:\d+ does not validate \(DNSSEC\)/);
  });

  test('the queue: what is held, what is old, what lies in quarantine, and a server that cannot be asked', async (t) => {
    const data = await temporaryFolder(t);
    await mkdir(join(data, 'queue', 'quarantine'), { recursive: true });
    for (const name of ['a.eml', 'a.eml.reason']) await writeFile(join(data, 'queue', 'quarantine', name), '');
    const clock = new HandClock();
    const look = async (answer: { readonly status: number; readonly body: unknown } | undefined) => {
      const findings = await queueCheck.run({
        options: ClientQueueOptions.parse({}),
        configuration: { hostname: 'mail.acme.org', data, folder: data, domains: ['acme.org'] },
        owner: answer === undefined ? undefined : () => Promise.resolve(answer),
        resolver: new SystemResolver(),
        clock,
        signal: new AbortController().signal,
      });
      return findings.map(({ state, is }) => `${state}: ${is}`);
    };
    const oldest = new Date(clock.now() - 2 * 86_400_000).toISOString();
    const body = { byState: { queued: 1, held: 2 }, open: 3, oldest };
    assert.deepEqual(
      (await look({ status: 200, body })).map((finding) => finding.slice(0, 35)),
      [
        'advice: 2 messages are held and go no',
        'advice: The oldest message waits si',
        'problem: 1 file of the queue lies in quarantine',
      ].map((text) => text.slice(0, 35)),
    );
    assert.match(
      (await look({ status: 200, body: { byState: {}, open: 0, oldest: null } }))[0] ?? '',
      /^ok: 0 messages are in the queue/,
    );
    assert.match((await look({ status: 200, body: 'nonsense' }))[0] ?? '', /^skipped: The queue cannot be asked/);
    assert.match((await look(undefined))[0] ?? '', /^skipped: There is no queue yet/);
  });
});
