import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Interned } from '../../../../plugins/client-queue/queue/queued-entry.js';

function heapUsed(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc()');
  return process.memoryUsage().heapUsed;
}

test('a piece of a large text is kept without the rest', () => {
  const texts = new Interned();
  const before = heapUsed();
  for (let number = 0; number < 40; number += 1) {
    const large = Buffer.alloc(1_000_000, `reply ${number} `).toString('latin1');
    assert.equal(texts.of(large.slice(0, 50)), large.slice(0, 50));
  }
  const grown = heapUsed() - before;
  assert.ok(grown < 10_000_000, `${grown} bytes`);
  assert.equal(texts.of('reply'), 'reply');
});
