import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { MailUser } from '../../../core/contracts/directory.js';
import { parseAddress } from '../../../core/mime/address.js';
import { problem } from '../../../core/problem.js';
import { AttemptLimiter } from '../../../core/auth/rate.js';
import { type PasswordAttempt, SignIns } from '../../../plugins/users/sign-ins.js';
import { canonicalUsername } from '../../../plugins/users/user.js';
import { isProblemNamed } from './users-site.js';

const username = 'anna@example.org';
const anna: MailUser = { username, address: parseAddress(username), aliases: [], quota: null, disabled: false };

/** Sign-ins over a directory that counts how often it was asked. */
function signInsWith(limit = 3) {
  const time = { ms: 0 };
  const clock = { now: () => time.ms, monotonic: () => time.ms };
  const asked: string[] = [];
  const directory = {
    canonical: (typed: string) => canonicalUsername(typed, ['example.org']),
    async authenticate(name: string, password: string) {
      asked.push(password);
      await new Promise(setImmediate);
      if (password === 'busy') throw problem('unavailable');
      return name === username && password === 'right' ? anna : undefined;
    },
  };
  const signIns = new SignIns(directory, new AttemptLimiter({ limit, windowSeconds: 600, maxKeys: 100, clock }));
  const attempt = (given: Partial<PasswordAttempt> = {}) =>
    signIns.attempt({ username, password: 'wrong', address: '192.0.2.1', exempt: false, ...given });
  return { attempt, asked, time };
}

const outcomes = async (attempts: readonly Promise<{ readonly outcome: string }>[]) =>
  (await Promise.all(attempts)).map(({ outcome }) => outcome);

describe('sign-ins', () => {
  it('are refused without a check after too many failures, right password or not, until the window is over', async () => {
    const { attempt, asked, time } = signInsWith();
    for (let count = 0; count < 3; count += 1) assert.equal((await attempt()).outcome, 'refused');
    const limited = await attempt({ password: 'right' });
    assert.ok(
      limited.outcome === 'limited' && limited.retryAfter > 0 && limited.retryAfter <= 1200,
      JSON.stringify(limited),
    );
    assert.equal(asked.length, 3);
    time.ms += 1_200_000;
    assert.equal((await attempt({ password: 'right' })).outcome, 'accepted');
  });

  it('are counted for each user and address, and the same user in other letters is no other', async () => {
    const { attempt } = signInsWith();
    for (let count = 0; count < 3; count += 1) await attempt();
    assert.equal((await attempt({ address: '192.0.2.2' })).outcome, 'refused');
    assert.equal((await attempt({ username: 'berta@example.org' })).outcome, 'refused');
    assert.equal((await attempt({ username: 'ANNA@example.org' })).outcome, 'limited');
    assert.equal((await attempt({ username: 'anna' })).outcome, 'limited');
  });

  it('are counted for a user that does not exist, too', async () => {
    const { attempt } = signInsWith();
    const nobody = { username: 'nobody@example.org' };
    for (let count = 0; count < 3; count += 1) assert.equal((await attempt(nobody)).outcome, 'refused');
    assert.equal((await attempt(nobody)).outcome, 'limited');
  });

  it('count from zero after a correct one', async () => {
    const { attempt } = signInsWith();
    const passwords = ['wrong', 'wrong', 'right', 'wrong', 'wrong', 'wrong', 'right'];
    const results: string[] = [];
    for (const password of passwords) results.push((await attempt({ password })).outcome);
    assert.deepEqual(results, ['refused', 'refused', 'accepted', 'refused', 'refused', 'refused', 'limited']);
  });

  it('at the same time are counted one by one', async () => {
    const { attempt, asked } = signInsWith();
    const results = await outcomes(Array.from({ length: 1000 }, () => attempt()));
    assert.equal(results.filter((outcome) => outcome === 'refused').length, 3);
    assert.equal(results.filter((outcome) => outcome === 'limited').length, 997);
    assert.equal(asked.length, 3);
  });

  it('that are right are all let in, however many come at once', async () => {
    const { attempt } = signInsWith();
    const results = await outcomes(Array.from({ length: 50 }, () => attempt({ password: 'right' })));
    assert.deepEqual(new Set(results), new Set(['accepted']));
  });

  it('that could not be checked do not count', async () => {
    const { attempt } = signInsWith();
    for (let count = 0; count < 5; count += 1) {
      await assert.rejects(attempt({ password: 'busy' }), isProblemNamed('unavailable'));
    }
    assert.equal((await attempt({ password: 'right' })).outcome, 'accepted');
  });

  it('of exempt clients are neither counted nor refused', async () => {
    const { attempt } = signInsWith();
    for (let count = 0; count < 5; count += 1) {
      assert.equal((await attempt({ exempt: true })).outcome, 'refused');
    }
    assert.equal((await attempt()).outcome, 'refused');
  });
});
