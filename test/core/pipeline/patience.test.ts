import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeliveryDeadline } from '../../../core/pipeline/commit.js';

test('work that ends in time gives its value or its fault', async () => {
  const patience = new DeliveryDeadline();
  assert.equal(await patience.for(Promise.resolve(1)), 1);
  await assert.rejects(patience.for(Promise.reject(new Error('broken'))), /broken/);
  patience.end();
});

test('everybody who waits when patience ends is told so, and who comes later at once', async () => {
  const patience = new DeliveryDeadline();
  const never = new Promise(() => undefined);
  const waiting = [patience.for(never), patience.for(never)];
  assert.equal(patience.over, false);
  patience.end();
  for (const one of waiting) await assert.rejects(one, /too long/);
  await assert.rejects(patience.for(never), /too long/);
  assert.equal(patience.over, true);
});
