import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeliveryDeadline } from '../../../core/pipeline/commit.js';

test('work that ends in time gives its value or its fault', async () => {
  const timeout = new DeliveryDeadline();
  assert.equal(await timeout.for(Promise.resolve(1)), 1);
  await assert.rejects(timeout.for(Promise.reject(new Error('broken'))), /broken/);
  timeout.end();
});

test('all who wait at the timeout are refused, and later callers at once', async () => {
  const timeout = new DeliveryDeadline();
  const never = new Promise(() => undefined);
  const waiting = [timeout.for(never), timeout.for(never)];
  assert.equal(timeout.over, false);
  timeout.end();
  for (const one of waiting) await assert.rejects(one, /too long/);
  await assert.rejects(timeout.for(never), /too long/);
  assert.equal(timeout.over, true);
});
