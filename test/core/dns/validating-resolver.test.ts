import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CachingResolver } from '../../../core/dns/caching-resolver.js';
import { isDnsFailure } from '../../../core/dns/resolver.js';
import { ValidatingResolver } from '../../../core/dns/validating-resolver.js';
import { DnsServer, type Zone } from '../../support/dns-server.js';
import type { Ending } from '../../support/ending.js';
import { HandClock } from '../../support/hand-clock.js';

async function resolverOf(t: Ending, zone: Zone, timeoutMs = 2000): Promise<[ValidatingResolver, DnsServer]> {
  const server = await DnsServer.start(t, zone);
  return [new ValidatingResolver({ servers: [server.address], timeoutMs, tries: 1 }), server];
}

const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'answered',
    (error: unknown) => (isDnsFailure(error) ? `${error.kind}${error.secure === true ? ', secure' : ''}` : error),
  );

const data = 'ab'.repeat(32);
const zone: Zone = {
  'example.com': { MX: [[10, 'mx.Example.com']], secure: true, ttl: 77 },
  'mx.example.com': { A: ['192.0.2.1'], AAAA: ['2001:db8:0:0:0:0:0:1'], secure: true, ttl: 42 },
  '_25._tcp.mx.example.com': { TLSA: [`3 1 1 ${data}`, '2 0 2 00'], secure: true },
  'plain.example': { MX: [[10, 'mx.plain.example']] },
  'alias.example.com': { CNAME: 'mx.example.com', secure: true, ttl: 9 },
  'half.example.com': { CNAME: 'insecure.example', secure: true },
  'insecure.example': { A: ['192.0.2.2'] },
};

test('answers say whether they are validated', async (t) => {
  const [resolver] = await resolverOf(t, zone);
  const mx = await resolver.resolveMx('Example.com');
  assert.deepEqual(mx, {
    records: [{ exchange: 'mx.example.com', preference: 10 }],
    ttl: 77,
    secure: true,
    canonical: 'example.com',
  });
  assert.deepEqual((await resolver.resolve4('mx.example.com')).records, ['192.0.2.1']);
  assert.deepEqual((await resolver.resolve6('mx.example.com')).records, ['2001:db8::1']);
  assert.equal((await resolver.resolveMx('plain.example')).secure, false);
  assert.deepEqual((await resolver.resolveTlsa('_25._tcp.mx.example.com')).records, [
    { usage: 3, selector: 1, matching: 1, data },
    { usage: 2, selector: 0, matching: 2, data: '00' },
  ]);
});

test('that there is no name or no record may be validated too', async (t) => {
  const [resolver] = await resolverOf(t, zone);
  assert.equal(await failureOf(resolver.resolveTlsa('mx.example.com')), 'nodata, secure');
  assert.equal(await failureOf(resolver.resolveTlsa('insecure.example')), 'nodata');
  assert.equal(await failureOf(resolver.resolveTlsa('_25._tcp.nowhere.example')), 'nxdomain');
});

test('aliases are followed, and the answer is as secure as all of them', async (t) => {
  const [resolver] = await resolverOf(t, zone);
  assert.deepEqual(await resolver.resolve4('alias.example.com'), {
    records: ['192.0.2.1'],
    ttl: 9,
    secure: true,
    canonical: 'mx.example.com',
  });
  const half = await resolver.resolve4('half.example.com');
  assert.deepEqual([half.secure, half.canonical], [false, 'insecure.example']);
  const alias = await resolver.resolveCname('half.example.com');
  assert.deepEqual([alias.secure, alias.records], [true, ['insecure.example']]);
});

test('a chain of aliases is followed for eight steps', async (t) => {
  const chain: Record<string, Zone[string]> = { 'a9.example': { A: ['192.0.2.1'] } };
  for (let n = 0; n < 9; n += 1) chain[`a${n}.example`] = { CNAME: `a${n + 1}.example` };
  const [resolver] = await resolverOf(t, chain);
  assert.deepEqual((await resolver.resolve4('a1.example')).records, ['192.0.2.1']);
  assert.equal(await failureOf(resolver.resolve4('a0.example')), 'servfail');
});

test('a truncated answer is fetched over TCP', async (t) => {
  const many = Array.from({ length: 30 }, () => `3 1 1 ${data}`);
  const [resolver, server] = await resolverOf(t, { 'a.example': { TLSA: many, truncated: true, secure: true } });
  const found = await resolver.resolveTlsa('a.example');
  assert.deepEqual([found.records.length, found.secure], [30, true]);
  assert.deepEqual(server.questions, ['TLSA a.example', 'TLSA a.example tcp']);
});

test('answers to other questions are left alone', async (t) => {
  const [resolver] = await resolverOf(t, { 'a.example': { A: ['192.0.2.1'], strays: true } });
  assert.deepEqual((await resolver.resolve4('a.example')).records, ['192.0.2.1']);
  const [waiting] = await resolverOf(t, { 'a.example': { A: ['192.0.2.1'], strays: true, silent: true } }, 200);
  assert.equal(await failureOf(waiting.resolve4('a.example')), 'timeout');
});

test('failures are told apart from missing records', async (t) => {
  const [resolver] = await resolverOf(t, {
    'bogus.example': { rcode: 'SERVFAIL' },
    'no.example': { rcode: 'REFUSED' },
  });
  assert.equal(await failureOf(resolver.resolveTlsa('bogus.example')), 'servfail');
  assert.equal(await failureOf(resolver.resolveMx('no.example')), 'servfail');
  assert.equal(await failureOf(resolver.resolveMx(`${'a'.repeat(64)}.example`)), 'nxdomain');
  const aborted = AbortSignal.abort();
  assert.equal(await failureOf(resolver.resolveMx('no.example', { signal: aborted })), 'aborted');
});

test('the next server is asked when one fails', async (t) => {
  const broken = await DnsServer.start(t, { 'a.example': { rcode: 'SERVFAIL' } });
  const silent = await DnsServer.start(t, { 'a.example': { silent: true } });
  const good = await DnsServer.start(t, { 'a.example': { A: ['192.0.2.1'] } });
  const servers = [broken.address, silent.address, good.address];
  const resolver = new ValidatingResolver({ servers, timeoutMs: 200, tries: 1 });
  assert.deepEqual((await resolver.resolve4('a.example')).records, ['192.0.2.1']);
});

test('a name with too many TLSA records, or too large ones, has failed', async (t) => {
  const many = Array.from({ length: 33 }, () => `3 1 1 ${data}`);
  const large = Array.from({ length: 5 }, () => `3 0 0 ${'ab'.repeat(2000)}`);
  const [resolver] = await resolverOf(t, {
    'many.example': { TLSA: many, truncated: true },
    'large.example': { TLSA: large, truncated: true },
  });
  assert.equal(await failureOf(resolver.resolveTlsa('many.example')), 'servfail');
  assert.equal(await failureOf(resolver.resolveTlsa('large.example')), 'servfail');
});

test('a server that validates says so about the root', async (t) => {
  const [resolver] = await resolverOf(t, { '': { secure: true } });
  assert.equal(await resolver.validates(), true);
  const [plain] = await resolverOf(t, { '': {} });
  assert.equal(await plain.validates(), false);
});

test('the cache keeps TLSA records for their time, with what is known of them', async (t) => {
  const [resolver, server] = await resolverOf(t, {
    '_25._tcp.mx.example': { TLSA: [`3 1 1 ${data}`], secure: true, ttl: 100 },
  });
  const clock = new HandClock();
  const cache = new CachingResolver(resolver, {}, clock);
  const ask = async () => (await cache.resolveTlsa('_25._tcp.mx.example')).secure;
  assert.deepEqual([await ask(), await ask(), server.questions.length], [true, true, 1]);
  clock.advance(101);
  assert.deepEqual([await ask(), server.questions.length], [true, 2]);
});
