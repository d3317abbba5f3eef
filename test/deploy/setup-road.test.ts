import assert from 'node:assert/strict';
import { test } from 'node:test';
import { skipWithoutRoot } from '../support/account.js';
import { skipWithout } from '../support/peers.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { packageTarball } from './package-tarball.js';
import { Registry } from './registry.js';
import { setupRoad } from './setup-road.js';

const skip = skipWithout('postfix') || skipWithoutRoot('Postfix changes its user');

test(
  'five commands lead from an empty folder to a signed mail that another server has accepted',
  { skip },
  async (t) => {
    const tarball = await packageTarball(t);
    const registry = await Registry.start(t, tarball);
    const npm = ['--registry', registry.url, '--cache', await temporaryFolder(t)];
    const { steps, verified } = await setupRoad(t, tarball, npm);
    for (const { command, seconds } of steps) t.diagnostic(`${seconds.toFixed(1)} s  ${command}`);
    assert.equal(steps.length, 5);
    assert.deepEqual(verified.toSorted(), ['ed1', 'rsa1']);
  },
);
