import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { authenticate } from 'mailauth';
import { FakeDns } from '../kit/fake-dns.js';
import { message } from '../kit/message.js';

describe('a fake DNS', () => {
  test('answers as configured, in the forms that people write', async () => {
    const dns = new FakeDns({
      'Example.org MX': ['10 mx.example.org.', { priority: 20, exchange: 'mx2.example.org' }],
      'mx.example.org a': ['192.0.2.1'],
      '192.0.2.1 PTR': ['mx.example.org'],
      'example.org TXT': ['v=spf1 mx -all'],
    });
    assert.deepEqual(await dns.resolve('example.org', 'MX'), [
      { exchange: 'mx.example.org', priority: 10 },
      { exchange: 'mx2.example.org', priority: 20 },
    ]);
    assert.deepEqual(await dns.resolve('MX.example.org.', 'A'), ['192.0.2.1']);
    assert.deepEqual(await dns.resolve('1.2.0.192.in-addr.arpa', 'PTR'), ['mx.example.org']);
    assert.deepEqual(await dns.resolve('example.org', 'TXT'), [['v=spf1 mx -all']]);
    assert.deepEqual(dns.questions, ['example.org MX', 'mx.example.org A', '192.0.2.1 PTR', 'example.org TXT']);
  });

  test('knows only the configured names, and only their configured records', async () => {
    const dns = new FakeDns({ 'example.org A': ['192.0.2.1'], 'empty.example TXT': [] });
    await assert.rejects(dns.resolve('nowhere.example', 'A'), { code: 'ENOTFOUND' });
    await assert.rejects(dns.resolve('example.org', 'AAAA'), { code: 'ENODATA' });
    await assert.rejects(dns.resolve('empty.example', 'TXT'), { code: 'ENODATA' });
    dns.delete('example.org A');
    await assert.rejects(dns.resolve('example.org', 'A'), { code: 'ENOTFOUND' });
    dns.set('example.org A', ['192.0.2.2']);
    assert.deepEqual(await dns.resolve('example.org', 'A'), ['192.0.2.2']);
  });

  test('fails as configured', async () => {
    const dns = new FakeDns({
      'a.example A': 'servfail',
      'b.example A': 'timeout',
      'c.example A': 'nxdomain',
      'd.example A': 'nodata',
    });
    for (const [name, code] of [
      ['a.example', 'ESERVFAIL'],
      ['b.example', 'ETIMEOUT'],
      ['c.example', 'ENOTFOUND'],
      ['d.example', 'ENODATA'],
    ] as const) {
      await assert.rejects(dns.resolve(name, 'A'), { code }, name);
    }
  });

  test('refuses what is no question, and an answer that is none', () => {
    for (const question of ['example.org', 'example.org SOA', 'a b TXT', '', 'no address PTR', 'example.org PTR']) {
      assert.throws(() => new FakeDns({ [question]: [] }), /is no question: write "example.org TXT"/, question);
    }
    const wrong = (answer: unknown) => () => new FakeDns({ 'example.org A': answer as string[] });
    assert.throws(wrong('192.0.2.1'), /"192.0.2.1" is no answer to example.org A/);
    assert.throws(wrong(undefined), /is no answer/);
    assert.throws(() => new FakeDns({ 'example.org MX': ['mx.example.org'] }), /is no answer to example.org MX/);
  });

  test('is a resolver for mailauth', async () => {
    const { resolve } = new FakeDns({
      'example.com TXT': ['v=spf1 ip4:192.0.2.1 -all'],
      '_dmarc.example.com TXT': ['v=DMARC1; p=reject'],
    });
    const check = (ip: string) =>
      authenticate(message({ from: 'anna@example.com' }), {
        ip,
        helo: 'client.example.com',
        sender: 'anna@example.com',
        mta: 'mx.example.org',
        // The declarations of mailauth know more types than are asked.
        resolver: resolve as never,
      });
    const good = await check('192.0.2.1');
    assert.deepEqual([good.spf && good.spf.status.result, good.dmarc && good.dmarc.status.result], ['pass', 'pass']);
    const bad = await check('198.51.100.1');
    assert.deepEqual([bad.spf && bad.spf.status.result, bad.dmarc && bad.dmarc.status.result], ['fail', 'fail']);
  });
});
