import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RecordedControl } from '../../../plugins/client-queue/delivery/destination-controls.js';
import { explainRelay } from '../../../plugins/client-queue/delivery/relay-hook.js';

test('an explanation says that the destination or its site is suspended', async () => {
  const suspended = (destination: string): RecordedControl => {
    const limits = { maxConnections: null, ratePerMinute: null };
    return { destination, suspendedUntil: Infinity, reason: 'they are moving', ...limits, by: null, at: 0 };
  };
  for (const key of ['example.net', 'site:mx.example.net']) {
    const explain = explainRelay(
      { find: () => Promise.resolve({ outcome: 'found', site: 'site:mx.example.net', servers: [] }) },
      { get: (asked) => (asked === key ? suspended(key) : undefined) },
    );
    assert.deepEqual(await explain({ target: 'relay', destination: 'example.net' }), [
      'It goes into the queue, to be sent to the MX of example.net.',
      `${key} is suspended: the mail waits until that ends (they are moving).`,
    ]);
  }
});
