import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judgeMail, type MailArrival } from './mail-verdict.js';
import type { RecipientEnd, RecipientLease } from './queue-tables.js';

const waits = 1;
const bounced = 4;
const delivered = 7;
const sent = (at: number, whole = true): MailArrival => ({
  id: 'a',
  address: 'to@one.example',
  node: 'mx1',
  at,
  whole,
});
const lease = (begun: number, ended: number, lost = false): RecipientLease => ({
  uid: 'u',
  address: 'to@one.example',
  token: `${begun}`,
  session: 'mx1:1',
  begun,
  ended,
  lost,
});

/** Of a message to one recipient that was accepted. */
function judged(
  state: number,
  arrivals: readonly MailArrival[] = [],
  leases: readonly RecipientLease[] = [],
  to = 'to@one.example',
) {
  const ends: readonly RecipientEnd[] = [{ uid: 'u', id: 'a', address: to, state }];
  return judgeMail({ accepted: new Map([['a', [to]]]), unanswered: new Map([['a', 0]]), arrivals, leases, ends });
}

test('what has neither arrived nor waits is lost', () => {
  assert.deepEqual(judged(delivered).lost, ['a to@one.example']);
  assert.deepEqual(judged(waits).lost, []);
  assert.deepEqual(judged(delivered, [sent(2)], [lease(1, 3)]).lost, []);
});

test('what is bounced is lost, but at a domain that refuses all', () => {
  assert.deepEqual(judged(bounced).lost, ['a to@one.example']);
  assert.deepEqual(judged(bounced, [], [], 'to@gone.example').lost, []);
});

test('what arrives with another body is damaged', () => {
  assert.deepEqual(judged(delivered, [sent(2)], [lease(1, 3)]).damaged, []);
  assert.deepEqual(judged(delivered, [sent(2, false)], [lease(1, 3)]).damaged, [sent(2, false)]);
});

test('a duplicate is explained by the loss of the lease of the delivery before', () => {
  const twice = [sent(2), sent(1005)];
  const explained = judged(delivered, twice, [lease(1, 3, true), lease(1004, 1006)]);
  assert.deepEqual([explained.duplicates, explained.unexplained, explained.sentAfter], [1, [], []]);
  assert.deepEqual(judged(delivered, twice, [lease(1, 3), lease(1004, 1006)]).unexplained, [sent(1005)]);
});
