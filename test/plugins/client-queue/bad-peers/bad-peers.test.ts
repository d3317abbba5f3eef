import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { type PeerKind, peerKinds } from '../../../support/bad-peers.js';
import { goodRate, ownEnding } from './course.js';

/** `BAD_PEERS=all` plays every kind; `BAD_PEERS_SEED` the kinds of another time. */
const seed = Number(process.env['BAD_PEERS_SEED'] ?? randomInt(2 ** 31));
const sampled = 3;
/** A machine that does something else at the moment is given another chance; without turns it is 0 to 0.3 each time. */
const tries = 3;
const enough = 0.4;
const size = { each: 60, good: 2000, limitMs: 6000, haste: 60 };

/** Pseudo-random, so that a seed names the same kinds everywhere. */
function drawn(): readonly PeerKind[] {
  if (process.env['BAD_PEERS'] === 'all') return peerKinds;
  const left = [...peerKinds];
  let state = seed;
  return Array.from({ length: sampled }, () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return left.splice((state >>> 8) % left.length, 1);
  }).flat();
}

for (const [title, kinds, bad] of [
  ...drawn().map((kind) => [kind, [kind], 20] as const),
  ['all kinds together', peerKinds, 2] as const,
]) {
  test(`a good server keeps its rate beside 60 domains: ${title}`, { timeout: 120_000 }, async (t) => {
    t.diagnostic(`BAD_PEERS_SEED=${seed}`);
    let ratio = 0;
    for (let nth = 0; nth < tries && ratio < enough; nth += 1) {
      const { ending, release } = ownEnding(t);
      const alone = await goodRate(ending, { ...size, kinds: [], bad: 0 });
      const beside = await goodRate(ending, { ...size, kinds, bad });
      await release();
      ratio = beside.rate / alone.rate;
      t.diagnostic(`${beside.rate.toFixed(0)}/s beside them, ${alone.rate.toFixed(0)}/s alone: ${ratio.toFixed(2)}`);
    }
    assert.ok(ratio >= enough, `${ratio.toFixed(2)} of its rate`);
  });
}
