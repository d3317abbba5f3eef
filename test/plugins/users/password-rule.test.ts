import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isProblem } from '../../../core/problem.js';
import { checkNewPassword } from '../../../plugins/users/password-rule.js';

const check = (password: string) => () => checkNewPassword(password, 'friederike@example.org');

/** Refused, with a sentence that does not show the password. */
const refused = (password: string, sentence: RegExp) =>
  assert.throws(
    check(password),
    (error) =>
      isProblem(error) &&
      error.problem === 'invalid' &&
      sentence.test(error.message) &&
      (password.length < 4 || !JSON.stringify(error.details).includes(password)),
    JSON.stringify(password),
  );

describe('a new password', () => {
  it('needs ten characters, counted as people see them', () => {
    refused('', /at least 10/);
    refused('ninechars', /at least 10/);
    refused('💌💌💌💌💌', /at least 10/);
    assert.doesNotThrow(check('ten charsX'));
    assert.doesNotThrow(check('ökumenisch'));
  });

  it('may be as long as anybody types, without rules of composition', () => {
    assert.doesNotThrow(check('staple horse correct battery'));
    assert.doesNotThrow(check('ab cde fgh '.repeat(23)));
    refused('ab cde fgh '.repeat(24), /at most 256/);
  });

  it('must not be what is tried first: the name, common ones, repetitions, sequences', () => {
    const first = ['friederike', 'Friederike', 'friederike@example.org', 'passwordpassword', 'Qwertyuiop'];
    for (const password of [...first, 'aaaaaaaaaaaa', 'abcabcabcabc', '1234567890', '0987654321', 'abcdefghijk']) {
      refused(password, /among the first/);
    }
  });

  it('must not hold what cannot be sent: control characters', () => {
    refused('ten chars\0X', /control/);
    refused('ten chars\nX', /control/);
  });
});
