import assert from 'node:assert/strict';
import { test } from 'node:test';
import { holdUpOf } from './hold-up-row.js';
import { mainThreadRows } from './main-thread-rows.js';
import { openServerRows } from './server-rows.js';

/** Far more than a quiet machine shows (`npm run hold-ups`). */
const mostMs = 200;

test('nothing that is given bytes of strangers holds the event loop for long', { timeout: 300_000 }, async (t) => {
  for (const row of [...mainThreadRows, ...(await openServerRows(t))]) {
    if (row.isOfOperator === true) continue;
    const ms = await holdUpOf(row);
    const text = `${row.what}: ${ms.toFixed(1)} ms`;
    t.diagnostic(text);
    assert.ok(ms <= mostMs, text);
  }
});
