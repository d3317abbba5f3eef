import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ClientLimits, type ClientPlace } from '../../../../core/smtp/server/limits.js';
import { HandClock } from '../../../support/hand-clock.js';

const usual = {
  clients: 4,
  clientsPerAddress: 2,
  authFailuresPerAddress: 2,
  authWindowSeconds: 60,
  exemptLoopback: true,
};

function enter(limits: ClientLimits, ip: string): ClientPlace {
  const place = limits.enter(ip);
  assert.equal(place.place, 'given');
  return place;
}

describe('the limits of clients', () => {
  test('count sessions of an address until they leave', () => {
    const limits = new ClientLimits(usual, new HandClock());
    const first = enter(limits, '192.0.2.1');
    enter(limits, '::ffff:192.0.2.1');
    assert.equal(limits.enter('192.0.2.1').place, 'address');
    enter(limits, '192.0.2.2');
    first.leave();
    first.leave();
    assert.equal(limits.sessions, 2);
    enter(limits, '192.0.2.1');
  });

  test('count IPv6 clients by their /64', () => {
    const limits = new ClientLimits(usual, new HandClock());
    enter(limits, '2001:db8::1');
    enter(limits, '2001:db8::2');
    assert.equal(limits.enter('2001:db8::3').place, 'address');
    enter(limits, '2001:db8:0:1::3');
  });

  test('leave loopback out of the limits per address, not of the total', () => {
    const limits = new ClientLimits(usual, new HandClock());
    for (let n = 0; n < 4; n++) enter(limits, '127.0.0.1');
    assert.equal(limits.enter('::1').place, 'all');
    for (let n = 0; n < 9; n++) limits.record('127.0.0.1');
    assert.equal(limits.retryAfter('127.0.0.1'), 0);
  });

  test('hold for loopback when the configuration says so', () => {
    const limits = new ClientLimits({ ...usual, exemptLoopback: false }, new HandClock());
    enter(limits, '127.0.0.1');
    enter(limits, '127.0.0.1');
    assert.equal(limits.enter('127.0.0.1').place, 'address');
  });

  test('make an address wait that failed to sign in too often, over all its sessions', () => {
    const limits = new ClientLimits(usual, new HandClock());
    limits.record('2001:db8::1');
    assert.equal(limits.retryAfter('2001:db8::1'), 0);
    limits.record('2001:db8::2');
    assert.ok(limits.retryAfter('2001:db8::3') > 0);
    assert.equal(limits.retryAfter('192.0.2.1'), 0);
  });

  test('may change while sessions are open', () => {
    const limits = new ClientLimits(usual, new HandClock());
    enter(limits, '192.0.2.1');
    limits.record('192.0.2.1');
    limits.record('192.0.2.1');
    limits.reconfigure({ ...usual, clientsPerAddress: 1 });
    assert.equal(limits.enter('192.0.2.1').place, 'address');
    assert.ok(limits.retryAfter('192.0.2.1') > 0);
    limits.reconfigure({ ...usual, authFailuresPerAddress: 3 });
    assert.equal(limits.retryAfter('192.0.2.1'), 0);
  });
});
