import assert from 'node:assert/strict';
import { test } from 'node:test';
import { uniqueId, uniqueIdPattern } from '../../../core/disk/id.js';

test('ids are distinct, sorted by time and safe in a URL', () => {
  const ids = Array.from({ length: 100_000 }, uniqueId);
  assert.equal(new Set(ids).size, ids.length);
  assert.deepEqual([...ids].sort(), ids);
  assert.ok(ids.every((id) => uniqueIdPattern.test(id)));
});
