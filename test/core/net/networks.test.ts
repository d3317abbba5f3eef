import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isProblem } from '../../../core/problem.js';
import { parseNetworks } from '../../../core/net/networks.js';

describe('a set of networks', () => {
  const networks = parseNetworks(['192.0.2.0/24', ' 198.51.100.7 ', '2001:db8::/32', '::1', '203.0.113.8/31']);

  for (const ip of [
    '192.0.2.0',
    '192.0.2.255',
    '198.51.100.7',
    '2001:db8:ffff::1',
    '::1',
    '203.0.113.9',
    '::ffff:192.0.2.9',
  ]) {
    test(`has ${ip}`, () => assert.equal(networks.has(ip), true));
  }

  for (const ip of [
    '192.0.3.0',
    '198.51.100.8',
    '2001:db9::',
    '::2',
    '203.0.113.10',
    '::ffff:192.0.3.1',
    '',
    'example.com',
  ]) {
    test(`does not have ${JSON.stringify(ip)}`, () => assert.equal(networks.has(ip), false));
  }

  test('of an empty text has no addresses', () => {
    assert.equal(parseNetworks([]).has('127.0.0.1'), false);
  });

  for (const [entry, reason] of [
    ['', /write an address/],
    ['example.com', /write an address/],
    ['192.0.2.0/24/24', /write an address/],
    ['192.0.2', /write an address/],
    ['fe80::%eth0/64', /write an address/],
    ['192.0.2.0/33', /from 0 to 32/],
    ['192.0.2.0/', /from 0 to 32/],
    ['192.0.2.0/-1', /from 0 to 32/],
    ['2001:db8::/129', /from 0 to 128/],
    ['10.1.2.3/8', /bits behind its first 8/],
    ['2001:db8::1/64', /bits behind its first 64/],
    ['::ffff:192.0.2.0/120', /as IPv4: 192\.0\.2\.0/],
  ] as const) {
    test(`is refused with ${JSON.stringify(entry)}, and says where`, () => {
      assert.throws(
        () => parseNetworks(['127.0.0.1', entry]),
        (error) => isProblem(error) && error.message.startsWith('Network 2, ') && reason.test(error.message),
      );
    });
  }
});
