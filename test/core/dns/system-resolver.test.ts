import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDnsFailure } from '../../../core/dns/resolver.js';
import { SystemResolver } from '../../../core/dns/system-resolver.js';
import { isProblem } from '../../../core/problem.js';
import { DnsServer, type Zone } from '../../support/dns-server.js';
import type { Ending } from '../../support/ending.js';

async function resolverOf(t: Ending, zone: Zone, timeoutMs = 2000): Promise<[SystemResolver, DnsServer]> {
  const server = await DnsServer.start(t, zone);
  return [new SystemResolver({ servers: [server.address], timeoutMs, tries: 1 }), server];
}

const kindOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'answered',
    (error: unknown) => (isDnsFailure(error) ? error.kind : error),
  );

test('records come from the server that was named', async (t) => {
  const [resolver] = await resolverOf(t, {
    'example.com': {
      MX: [
        [10, 'mx.Example.com'],
        [20, 'mx2.example.com'],
      ],
      TXT: ['v=spf1 -all'],
    },
    'mx.example.com': { A: ['192.0.2.1'], AAAA: ['2001:db8:0:0:0:0:0:1'], ttl: 42 },
    '1.2.0.192.in-addr.arpa': { PTR: ['mx.example.com'] },
  });
  assert.deepEqual((await resolver.resolveMx('example.com')).records, [
    { exchange: 'mx.example.com', preference: 10 },
    { exchange: 'mx2.example.com', preference: 20 },
  ]);
  assert.deepEqual(await resolver.resolve4('mx.example.com'), { records: ['192.0.2.1'], ttl: 42 });
  assert.deepEqual(await resolver.resolve6('mx.example.com'), { records: ['2001:db8::1'], ttl: 42 });
  assert.deepEqual((await resolver.resolveTxt('example.com')).records, ['v=spf1 -all']);
  assert.deepEqual((await resolver.resolvePtr('192.0.2.1')).records, ['mx.example.com']);
});

test('a null MX has an empty exchange', async (t) => {
  const [resolver] = await resolverOf(t, { 'example.com': { MX: [[0, '.']] } });
  assert.deepEqual((await resolver.resolveMx('example.com')).records, [{ exchange: '', preference: 0 }]);
});

test('an alias is followed', async (t) => {
  const [resolver] = await resolverOf(t, {
    'mail.example.com': { CNAME: 'real.example.com' },
    'real.example.com': { A: ['192.0.2.7'] },
  });
  assert.deepEqual((await resolver.resolve4('mail.example.com')).records, ['192.0.2.7']);
});

test('an answer that is too long for UDP is asked for over TCP', async (t) => {
  const [resolver, server] = await resolverOf(t, { 'example.com': { MX: [[10, 'mx.example.com']], truncated: true } });
  assert.equal((await resolver.resolveMx('example.com')).records.length, 1);
  assert.deepEqual(server.questions, ['MX example.com', 'MX example.com tcp']);
});

test('no such name, no such record, a server that cannot and one that refuses are different failures', async (t) => {
  const [resolver] = await resolverOf(t, {
    'empty.example': {},
    'broken.example': { rcode: 'SERVFAIL' },
    'closed.example': { rcode: 'REFUSED' },
  });
  assert.equal(await kindOf(resolver.resolveMx('nowhere.example')), 'nxdomain');
  assert.equal(await kindOf(resolver.resolveMx('empty.example')), 'nodata');
  assert.equal(await kindOf(resolver.resolveMx('broken.example')), 'servfail');
  assert.equal(await kindOf(resolver.resolve4('closed.example')), 'servfail');
});

test('a server that is silent is given up, and an abort is faster', async (t) => {
  const [resolver, server] = await resolverOf(t, { 'silent.example': { silent: true } }, 300);
  assert.equal(await kindOf(resolver.resolveMx('silent.example')), 'timeout');
  const abort = new AbortController();
  const patient = new SystemResolver({ servers: [server.address], timeoutMs: 60_000, tries: 1 });
  const asking = kindOf(patient.resolve4('silent.example', { signal: abort.signal }));
  abort.abort();
  assert.equal(await asking, 'aborted');
  assert.equal(await kindOf(patient.resolve4('silent.example', { signal: abort.signal })), 'aborted');
  const hasty = new SystemResolver({ servers: [server.address], timeoutMs: 60_000, tries: 1, totalMs: 50 });
  assert.equal(await kindOf(hasty.resolve6('silent.example')), 'timeout');
});

test('a server that is no address is refused', () => {
  for (const server of ['ns.example.com', '192.0.2.1:0', '192.0.2.1:99999', '192.0.2.1:x', '']) {
    assert.throws(() => new SystemResolver({ servers: [server] }), isProblem, server);
  }
  for (const server of ['192.0.2.1', '192.0.2.1:5353', '2001:db8::1', '[2001:db8::1]:5353']) {
    assert.ok(new SystemResolver({ servers: [server] }));
  }
});
