import assert from 'node:assert/strict';
import { test } from 'node:test';
import { differenceOf, openQuestions, timeUsers } from './timed-users.js';

const pairs = 15;
/** Far more than a quiet machine shows (`npm run timing`), and far less than a hash that is left out. */
const mostDifference = 0.25;

test('S21 H24 a wrong password takes as long for a user who is not there', { timeout: 120_000 }, async (t) => {
  const { secret } = await openQuestions(t);
  for (const [title, ask] of secret) {
    let times = await timeUsers(ask, pairs);
    // A machine that had something else to do for a moment is asked again.
    for (let again = 0; again < 3 && differenceOf(times) > mostDifference; again += 1)
      times = await timeUsers(ask, pairs);
    const row = `${title}: known ${times.known.toFixed(1)} ms, unknown ${times.unknown.toFixed(1)} ms`;
    t.diagnostic(row);
    assert.ok(differenceOf(times) <= mostDifference, row);
  }
});
