import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAddress } from '../../../core/mime/address.js';
import { DestinationRules, readDestination } from '../../../plugins/client-queue/delivery/destination.js';

const rules = new DestinationRules({
  routes: {
    partner: { domains: ['Partner.example', '*.partner.example'] },
    special: { domains: ['*.deep.partner.example'] },
    smart: { domains: [] },
  },
});
const key = (address: string, of = rules): string => of.keyOf(parseAddress(address));

test('without a route a domain is its own destination, and a literal is', () => {
  assert.equal(key('a@Elsewhere.example'), 'elsewhere.example');
  assert.equal(key('a@[192.0.2.1]'), '[192.0.2.1]');
  assert.equal(key('a@[IPv6:2001:db8::1]'), '[ipv6:2001:db8::1]');
});

test('domains of a route take it; the longest name counts, and a star is for what is below', () => {
  assert.equal(key('a@partner.example'), 'route:partner');
  assert.equal(key('a@mail.partner.example'), 'route:partner');
  assert.equal(key('a@x.deep.partner.example'), 'route:special');
  assert.equal(key('a@deep.partner.example'), 'route:partner');
  assert.equal(key('a@notpartner.example'), 'notpartner.example');
});

test('all others take the default route, but for a certain machine', () => {
  const smart = new DestinationRules({ routes: { smart: { domains: [] } }, defaultRoute: 'smart' });
  assert.equal(key('a@elsewhere.example', smart), 'route:smart');
  assert.equal(key('a@[192.0.2.1]', smart), '[192.0.2.1]');
});

test('a key says what it stands for', () => {
  assert.deepEqual(readDestination('route:smart'), { kind: 'route', route: 'smart' });
  assert.deepEqual(readDestination('target:mailbox'), { kind: 'target', target: 'mailbox' });
  assert.deepEqual(readDestination('[192.0.2.1]'), { kind: 'literal', domain: '[192.0.2.1]' });
  assert.deepEqual(readDestination('example.org'), { kind: 'domain', domain: 'example.org' });
});
