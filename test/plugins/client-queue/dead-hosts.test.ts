import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { closedFailure, timeoutFailure } from '../../../core/smtp/client/failure.js';
import { DeadHosts } from '../../../plugins/client-queue/delivery/dead-hosts.js';
import { HandClock } from '../../support/hand-clock.js';

const server = { address: '192.0.2.1', port: 25 };
const usual = { asked: false, last: false };

function deadHosts() {
  const clock = new HandClock();
  const dead = new DeadHosts(clock);
  return {
    dead,
    clock,
    /** It stalls at these messages, one after the other. Whether it is dead behind the last. */
    stall: (uids: string, about = usual): boolean => {
      for (const uid of uids) dead.stalled(server, timeoutFailure('final'), { uid, ...about });
      return isDead(dead);
    },
  };
}

const isDead = (dead: DeadHosts, about = usual): boolean => dead.get(server, { uid: 'z', ...about }) !== undefined;

describe('a server that stalls at messages', () => {
  for (const [uids, expected] of [
    ['aaaaaa', false],
    ['ababab', false],
    ['abbaac', true],
    ['abc', true],
  ] as const) {
    test(`${uids}: ${expected ? 'dead' : 'not dead'}`, () => assert.equal(deadHosts().stall(uids), expected));
  }

  test('is not dead again by one message alone', () => {
    const { stall, clock } = deadHosts();
    assert.ok(stall('abc'));
    clock.advance(121);
    assert.equal(stall('cccc'), false);
    assert.equal(stall('d'), true, 'another one is one more in the row');
  });

  test('is not alive because it takes a call', () => {
    const { dead, stall } = deadHosts();
    stall('abc');
    dead.spoke(server);
    assert.equal(isDead(dead), true);
    dead.remove(server);
    assert.equal(isDead(dead), false, 'but because it has answered a message');
    assert.equal(stall('de'), false);
  });

  test('is another one than its neighbour at the next port', () => {
    const { dead, stall } = deadHosts();
    stall('ab');
    assert.equal(dead.stalled({ ...server, port: 26 }, timeoutFailure('final'), { uid: 'c', ...usual }), false);
  });

  test('is called for mail whose time is over, and for an operator', () => {
    const { dead, stall, clock } = deadHosts();
    stall('abc');
    assert.equal(isDead(dead, { asked: false, last: true }), false);
    assert.equal(isDead(dead, { asked: true, last: false }), false);
    stall('d', { asked: true, last: false });
    assert.equal(isDead(dead, { asked: true, last: false }), true, 'it has stalled at what he asked for as well');
    clock.advance(121);
    assert.equal(isDead(dead), false);
  });

  test('is reported as not sent, without doubt', () => {
    const { dead, stall } = deadHosts();
    stall('abc');
    const failure = dead.get(server, { uid: 'z', ...usual });
    assert.deepEqual([failure?.afterDot, failure?.permanent, failure?.code], [false, false, 451]);
  });
});

test('a server that could not be reached is dead at once, for all mail, until it takes a call', () => {
  const { dead } = deadHosts();
  dead.unreached(server, closedFailure('connect'), { uid: 'a', ...usual });
  assert.equal(isDead(dead), true);
  assert.equal(isDead(dead, { asked: false, last: true }), true);
  dead.spoke(server);
  assert.equal(isDead(dead), false);
});
