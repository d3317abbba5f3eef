import { test } from 'node:test';
import { rideOut } from '../e2e/reload-storm.js';

test('hundreds of reloads under mail drop no session and lose no message', { timeout: 300_000 }, async (t) => {
  await rideOut(t, { reloads: 400, messages: 200 });
});
