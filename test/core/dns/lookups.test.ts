import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { DnsType } from '../../../core/contracts/dns.js';
import { CachingResolver } from '../../../core/dns/caching-resolver.js';
import { DnsLookups } from '../../../core/dns/plugin-dns.js';
import { questionAddress, questionName } from '../../../core/dns/resolver.js';
import { SystemResolver } from '../../../core/dns/system-resolver.js';
import { systemTimers } from '../../../core/clock.js';
import { DnsServer, type Zone } from '../../support/dns-server.js';
import type { Ending } from '../../support/ending.js';

const zone: Zone = {
  'example.org': {
    A: ['192.0.2.1', '192.0.2.2'],
    AAAA: ['2001:db8:0:0:0:0:0:1'],
    MX: [[10, 'mx.example.org']],
    TXT: ['v=spf1 -all', 'two'],
  },
  'null.example': { MX: [[0, '']] },
  '_dmarc.example.org': { TXT: ['v=DMARC1; p=none'] },
  'xn--bcher-kva.example': { A: ['192.0.2.3'] },
  '1.2.0.192.in-addr.arpa': { PTR: ['mx.example.org'] },
  'broken.example': { rcode: 'SERVFAIL' },
  'silent.example': { silent: true },
};

async function lookups(t: Ending, maxMs = 5000) {
  const server = await DnsServer.start(t, zone);
  const system = new SystemResolver({ servers: [server.address], timeoutMs: 2000, tries: 1 });
  return { server, dns: new DnsLookups({ resolver: new CachingResolver(system), timers: systemTimers, maxMs }) };
}

describe('a lookup', () => {
  test('finds records of each type, in the shapes of node:dns', async (t) => {
    const { dns } = await lookups(t);
    const found = async (name: string, type: DnsType) => {
      const answer = await dns.lookup(name, type);
      assert.deepEqual(await dns.resolve(name, type), answer.records);
      return answer.records;
    };
    assert.deepEqual(await found('example.org', 'A'), ['192.0.2.1', '192.0.2.2']);
    assert.deepEqual(await found('Example.ORG.', 'AAAA'), ['2001:db8::1']);
    assert.deepEqual(await found('example.org', 'MX'), [{ exchange: 'mx.example.org', priority: 10 }]);
    assert.deepEqual(await found('example.org', 'TXT'), [['v=spf1 -all'], ['two']]);
    assert.deepEqual(await found('_dmarc.example.org', 'TXT'), [['v=DMARC1; p=none']]);
    assert.deepEqual(await found('bücher.example', 'A'), ['192.0.2.3']);
    assert.deepEqual(await found('192.0.2.1', 'PTR'), ['mx.example.org']);
    assert.deepEqual(await found('1.2.0.192.in-addr.arpa', 'PTR'), ['mx.example.org']);
    assert.deepEqual(await found('null.example', 'MX'), [{ exchange: '', priority: 0 }]);
  });

  test('distinguishes no record, no name, and no answer', async (t) => {
    const { dns } = await lookups(t, 300);
    assert.deepEqual(await dns.lookup('null.example', 'A'), { status: 'nodata', records: [] });
    assert.deepEqual(await dns.lookup('nowhere.example', 'A'), { status: 'nxdomain', records: [] });
    assert.deepEqual(await dns.lookup('broken.example', 'TXT'), { status: 'failed', records: [], reason: 'servfail' });
    assert.deepEqual(await dns.lookup('silent.example', 'A'), { status: 'failed', records: [], reason: 'timeout' });
    await assert.rejects(dns.resolve('null.example', 'A'), { code: 'ENODATA', hostname: 'null.example' });
    await assert.rejects(dns.resolve('nowhere.example', 'A'), { code: 'ENOTFOUND' });
    await assert.rejects(dns.resolve('broken.example', 'TXT'), { code: 'ESERVFAIL' });
    await assert.rejects(dns.resolve('silent.example', 'A'), { code: 'ETIMEOUT' });
  });

  test('sends no query for an impossible name', async (t) => {
    const { dns, server } = await lookups(t);
    const names = [
      '',
      '.',
      'a..example',
      `${'a'.repeat(64)}.example`,
      'a b.example',
      'a\r\nb.example',
      '\0',
      'a\\b.example',
    ];
    for (const name of [...names, `${'abcdefg.'.repeat(32)}example`]) {
      assert.deepEqual(await dns.lookup(name, 'A'), { status: 'nxdomain', records: [] }, JSON.stringify(name));
    }
    assert.equal((await dns.lookup('not an address', 'PTR')).status, 'nxdomain');
    assert.deepEqual(server.questions, []);
  });

  test('asks each question once, at a time and within what the cache remembers', async (t) => {
    const { dns, server } = await lookups(t);
    await Promise.all([dns.lookup('example.org', 'A'), dns.lookup('EXAMPLE.org', 'A')]);
    await dns.lookup('example.org.', 'A');
    await dns.lookup('nowhere.example', 'A');
    await dns.lookup('nowhere.example', 'A');
    assert.deepEqual(server.questions, ['A example.org', 'A nowhere.example']);
  });

  test('ends when it is not wanted any more', async (t) => {
    const { dns } = await lookups(t);
    assert.deepEqual(await dns.lookup('silent.example', 'A', { signal: AbortSignal.timeout(20) }), {
      status: 'failed',
      records: [],
      reason: 'aborted',
    });
  });

  test('refuses a record type that it does not support', async (t) => {
    const { dns } = await lookups(t);
    await assert.rejects(dns.resolve('example.org', 'TLSA'), { code: 'ESERVFAIL' });
  });
});

describe('a question', () => {
  test('is a name in its one spelling', () => {
    assert.equal(questionName('_Dmarc.Example.org.'), '_dmarc.example.org');
    assert.equal(questionName('bücher.example'), 'xn--bcher-kva.example');
    assert.equal(questionName('a=b+c.example'), 'a=b+c.example');
    assert.equal(questionName('über\u0000.example'), undefined);
  });

  test('for a name is an address, however it is written', () => {
    const six = '2001:db8::567:89ab';
    const reversed = 'b.a.9.8.7.6.5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa';
    assert.equal(questionAddress('192.0.2.1'), '192.0.2.1');
    assert.equal(questionAddress('1.2.0.192.IN-ADDR.ARPA.'), '192.0.2.1');
    assert.equal(questionAddress(six), six);
    assert.equal(questionAddress(reversed), six);
    for (const no of [
      '',
      'example.org',
      '1.2.0.in-addr.arpa',
      '1.2.0.999.in-addr.arpa',
      'b.a.ip6.arpa',
      '1.2.3.4.ip6.arpa',
    ]) {
      assert.equal(questionAddress(no), undefined, no);
    }
  });
});
