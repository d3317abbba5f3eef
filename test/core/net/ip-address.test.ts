import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  bitsOf,
  clientKey,
  isLoopbackAddress,
  networkOf,
  normalAddress,
  reversedAddress,
} from '../../../core/net/ip-address.js';

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

  test('belongs to a network of any length', () => {
    const of = (ip: string, ipv4: number, ipv6: number) => networkOf(ip, { ipv4, ipv6 });
    assert.equal(of('192.0.2.77', 24, 64), '192.0.2.0/24');
    assert.equal(of('::ffff:192.0.2.77', 20, 64), '192.0.0.0/20');
    assert.equal(of('192.0.2.77', 32, 64), '192.0.2.77/32');
    assert.equal(of('2001:DB8:1:2:3:4:5:6', 24, 64), '2001:db8:1:2::/64');
    assert.equal(of('2001:db8:1:2::1', 24, 44), '2001:db8::/44');
    assert.equal(of('::1', 24, 128), '::1/128');
    assert.equal(of('unknown', 24, 64), 'unknown');
  });

  test('is asked for in the DNS from its end', () => {
    assert.equal(reversedAddress('192.0.2.1'), '1.2.0.192');
    assert.equal(reversedAddress('::ffff:192.0.2.1'), '1.2.0.192');
    const nibbles = '1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2';
    assert.equal(reversedAddress('2001:db8::1'), nibbles);
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
