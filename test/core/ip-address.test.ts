import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bitsOf, clientKey, isLoopbackAddress, normalAddress } from '../../core/ip-address.js';

describe('the address of a peer', () => {
  for (const [ip, normal] of [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:c000:0201', '192.0.2.1'],
    ['0:0:0:0:0:ffff:192.0.2.1', '192.0.2.1'],
    ['2001:DB8:0:0::1', '2001:db8::1'],
    ['fe80::1%eth0', 'fe80::1'],
    ['::', '::'],
    ['64:ff9b::192.0.2.1', '64:ff9b::c000:201'],
    ['not an address', 'not an address'],
  ] as const) {
    test(`${ip} is spelled ${normal}`, () => {
      assert.equal(normalAddress(ip), normal);
    });
  }

  test('counts as itself for IPv4 and as its /64 for IPv6', () => {
    assert.equal(clientKey('::ffff:192.0.2.1'), '192.0.2.1');
    assert.equal(clientKey('2001:db8:1:2:3:4:5:6'), '2001:db8:1:2::/64');
    assert.equal(clientKey('2001:db8:1:2::1'), '2001:db8:1:2::/64');
    assert.notEqual(clientKey('2001:db8:1:3::1'), clientKey('2001:db8:1:2::1'));
    assert.equal(clientKey('::1'), '0:0:0:0::/64');
  });

  test('is known as loopback in all its forms', () => {
    for (const ip of ['127.0.0.1', '127.8.9.1', '::1', '::ffff:127.0.0.1'])
      assert.equal(isLoopbackAddress(ip), true, ip);
    for (const ip of ['128.0.0.1', '10.127.0.1', '::2', '127.example.com'])
      assert.equal(isLoopbackAddress(ip), false, ip);
  });

  test('has 32 or 128 bits', () => {
    assert.equal(bitsOf('192.0.2.1'), '11000000000000000000001000000001');
    assert.equal(bitsOf('8000::1'), `1${'0'.repeat(126)}1`);
  });
});
