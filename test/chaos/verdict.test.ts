import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Arrival, judge, type LeaseChange } from './verdict.js';

const arrival = (token: string, at: number, id = 'a'): Arrival => ({ id, node: 'mx1', token, at });
const lease = (token: string, change: LeaseChange['change'], at: number, id = 'a'): LeaseChange => ({
  id,
  token,
  change,
  at,
});
const judged = (arrivals: readonly Arrival[], leases: readonly LeaseChange[], waiting: readonly string[] = []) =>
  judge({ ids: ['a'], waiting: new Set(waiting), arrivals, leases });

test('a message that has neither arrived nor waits is lost', () => {
  assert.deepEqual(judged([], []).lost, ['a']);
  assert.deepEqual(judged([], [], ['a']).lost, []);
  assert.deepEqual(judged([arrival('1', 2)], [lease('1', 'begun', 1), lease('1', 'settled', 3)]).lost, []);
});

test('an arrival without a lease, or behind its loss, is one that the fence should have prevented', () => {
  const begun = lease('1', 'begun', 1);
  assert.deepEqual(judged([arrival('1', 2)], [begun, lease('1', 'lost', 3)]).sentAfter, []);
  assert.deepEqual(judged([arrival('1', 4)], [begun, lease('1', 'lost', 3)]).sentAfter, [arrival('1', 4)]);
  assert.deepEqual(judged([arrival('1', 4)], []).sentAfter, [arrival('1', 4)]);
});

test('a duplicate is explained by the loss of the lease of the delivery before', () => {
  const twice = [arrival('2', 5), arrival('1', 2)];
  const leases = [lease('1', 'begun', 1), lease('2', 'begun', 4), lease('2', 'settled', 6)];
  const explained = judged(twice, [...leases, lease('1', 'lost', 3)]);
  assert.deepEqual([explained.duplicates, explained.unexplained, explained.sentAfter], [1, [], []]);
  assert.deepEqual(judged(twice, [...leases, lease('1', 'settled', 3)]).unexplained, [arrival('2', 5)]);
});
