import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runOutage } from '../../chaos/outage.js';
import { skipWithout } from '../../support/peers.js';

/** A short way through `npm run chaos -- --outage 600`. */
test(
  'a database that is away under load for longer than sessions and the timeout of a commit, nodes killed in it: nothing is lost, nothing sent twice',
  { skip: skipWithout('postgres') },
  async (t) => {
    const result = await runOutage(t, { messages: 400, outageMs: 40_000, sessionSeconds: 6 });
    t.diagnostic(JSON.stringify(result));
    assert.deepEqual([result.lost, result.doubled], [[], []]);
    assert.equal(result.accepted, 400);
    assert.ok(result.kept > 0 && result.kills >= 3);
  },
);
