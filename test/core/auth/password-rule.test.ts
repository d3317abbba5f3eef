import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { passwordComplaint } from '../../../core/auth/password.js';

const complaint = (password: string) => passwordComplaint(password, 'friederike@example.org');

/** Refused, with a sentence that does not show the password. */
function refused(password: string, sentence: RegExp): void {
  const said = complaint(password);
  assert.match(said ?? '', sentence, JSON.stringify(password));
  assert.ok(password.length < 4 || said?.includes(password) !== true, JSON.stringify(password));
}

describe('a new password', () => {
  it('needs ten characters, counted as users see them', () => {
    refused('', /at least 10/);
    refused('ninechars', /at least 10/);
    refused('💌💌💌💌💌', /at least 10/);
    assert.equal(complaint('ten charsX'), undefined);
    assert.equal(complaint('ökumenisch'), undefined);
  });

  it('may be long, without rules of composition', () => {
    assert.equal(complaint('staple horse correct battery'), undefined);
    assert.equal(complaint('ab cde fgh '.repeat(23)), undefined);
    refused('ab cde fgh '.repeat(24), /at most 256/);
  });

  it('must not be easy to guess: the name, common ones, repetitions, sequences', () => {
    const first = ['friederike', 'Friederike', 'friederike@example.org', 'passwordpassword', 'Qwertyuiop'];
    for (const password of [...first, 'aaaaaaaaaaaa', 'abcabcabcabc', '1234567890', '0987654321', 'abcdefghijk']) {
      refused(password, /easy to guess/);
    }
  });

  it('must not hold control characters', () => {
    refused('ten chars\0X', /control/);
    refused('ten chars\nX', /control/);
  });
});
