import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isPrivateAddress } from '../../../core/dns/private-address.js';

test('addresses that are not of the Internet are private, however they are spelt', () => {
  const some =
    '0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1 172.31.255.255 192.168.1.1 198.19.0.1 ' +
    '224.0.0.1 255.255.255.255 :: ::1 fd00::1 fe80::1 fe80::1%eth0 ff02::1 ::ffff:127.0.0.1 ::ffff:7f00:1 64:ff9b::127.0.0.1 ' +
    '64:ff9b::a00:1 2002:7f00:1:: 2002:c0a8:0101::1 ::127.0.0.1 2001::1 64:ff9b:1::1';
  for (const address of some.split(' ')) assert.equal(isPrivateAddress(address), true, address);
});

test('other addresses are not', () => {
  const some =
    '1.1.1.1 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.169.0.1 198.17.0.1 223.255.255.255 ' +
    '2001:db8::1 2606:4700::1111 64:ff9b::1.1.1.1 2002:101:101::1 ::ffff:1.1.1.1';
  for (const address of some.split(' ')) assert.equal(isPrivateAddress(address), false, address);
});
