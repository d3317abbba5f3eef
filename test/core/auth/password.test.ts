import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { hashPassword, isPasswordHash, verifyUnknownUser, verifyPassword } from '../../../core/auth/password.js';
import { isProblem } from '../../../core/problem.js';
import { cheapHash } from './cheap-hash.js';

describe('passwords', () => {
  it('are kept as scrypt with N=2^15, r=8, p=3 and verify', async () => {
    const stored = await hashPassword('correct horse');
    assert.match(stored, /^scrypt\$32768\$8\$3\$[\w-]{22}\$[\w-]{43}$/);
    assert.equal(isPasswordHash(stored), true);
    assert.equal(await verifyPassword('correct horse', stored), true);
    assert.equal(await verifyPassword('correct horsf', stored), false);
  });

  it('have a salt of their own: the same password hashes differently', async () => {
    assert.notEqual(await hashPassword('correct horse'), await hashPassword('correct horse'));
  });

  it('verify against the cost that the stored hash names', async () => {
    assert.equal(await verifyPassword('pässword', cheapHash('pässword')), true);
    assert.equal(await verifyPassword('password', cheapHash('pässword')), false);
    assert.equal(await verifyPassword('x', cheapHash('x', '2048$4$2')), true);
  });

  it('may be long, empty or hold a colon', async () => {
    for (const password of ['', 'a:b:c', 'x'.repeat(1000)]) {
      assert.equal(await verifyPassword(password, cheapHash(password)), true);
    }
  });

  it('are the same however an accent was composed', async () => {
    assert.equal(await verifyPassword('cafe\u0301', cheapHash('caf\u00e9')), true);
  });

  it('match no string that is not a hash of ours, and nothing throws', async () => {
    const good = cheapHash('x');
    const broken = [
      '',
      'x',
      '$2b$10$abcdefghijklmnopqrstuv',
      good.replace('scrypt', 'SCRYPT'),
      good.replace('1024', '1023'),
      good.replace('1024', '2'),
      good.replace('1024', '2097152'),
      good.replace('$8$', '$0$'),
      good.replace('$8$1$', '$8$99$'),
      good.replace('1024$8$', '1048576$32$'),
      good.slice(0, -30),
      `${good}\n`,
    ];
    for (const stored of broken) {
      assert.equal(isPasswordHash(stored), false, stored);
    }
    assert.equal(await verifyPassword('x', 'x'), false);
  });

  it('of unknown users never verify', async () => {
    assert.equal(await verifyUnknownUser('anything'), false);
  });

  it('of one client beyond its limit are refused temporarily, and the waiting ones complete', async () => {
    const stored = cheapHash('x');
    const answers = await Promise.allSettled(Array.from({ length: 400 }, () => verifyPassword('x', stored)));
    const refused = answers.filter((answer) => answer.status === 'rejected').map(({ reason }) => reason as unknown);
    assert.equal(answers.filter((answer) => answer.status === 'fulfilled' && answer.value).length, 34);
    assert.equal(refused.length, 366);
    for (const reason of refused) {
      assert.ok(isProblem(reason) && reason.problem === 'unavailable');
      assert.equal(reason.details.headers?.['Retry-After'], '5');
    }
    assert.equal(await verifyPassword('x', stored), true, 'the queue has room again');
  });
});
