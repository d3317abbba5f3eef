import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compilePattern } from '../../../core/text/pattern.js';
import { isProblem } from '../../../core/problem.js';

test('a pattern matches a text as a whole, or a part of it', () => {
  const pattern = compilePattern('ann|bob');
  assert.equal(pattern.matches('ann'), true);
  assert.equal(pattern.matches('anna'), false);
  assert.equal(pattern.occursIn('anna'), true);
  assert.equal(pattern.occursIn('carl'), false);
});

test('case matters unless it is ignored', () => {
  assert.equal(compilePattern('ann').matches('Ann'), false);
  assert.equal(compilePattern('ann', { ignoreCase: true }).matches('Ann'), true);
});

test('patterns that take exponential time elsewhere are answered at once', () => {
  for (const [text, value] of [
    ['(a+)+$', `${'a'.repeat(5000)}!`],
    ['.*@.*@.*x', '@'.repeat(5000)],
    ['(x|xx)*y', 'x'.repeat(5000)],
  ] as const) {
    assert.equal(compilePattern(text).matches(value), false);
  }
});

test('an invalid, too long or too large pattern is refused with a sentence', () => {
  for (const text of ['(', '(?=a)', '(a)\\1', '[z-a]', 'a{2000}', '((a{100}){100}){100}', 'a'.repeat(1001)]) {
    assert.throws(
      () => compilePattern(text),
      (error) => isProblem(error) && error.problem === 'invalid' && /pattern/.test(error.message),
      text,
    );
  }
});
