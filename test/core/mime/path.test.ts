import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { parseDomain, parsePath, parsePathArgument } from '../../../core/mime/address.js';
import { isProblem } from '../../../core/problem.js';

const invalid = (error: unknown): boolean => isProblem(error) && error.problem === 'invalid';

describe('a path', () => {
  test('of nothing is the null reverse-path', () => {
    assert.equal(parsePath('<>'), null);
  });

  for (const [path, address] of [
    ['<user@example.com>', 'user@example.com'],
    ['<"a>b"@example.com>', '"a>b"@example.com'],
    ['<@one.example:user@example.com>', 'user@example.com'],
    ['<@one.example,@two.example:"x:y"@example.com>', '"x:y"@example.com'],
    ['<user@[IPv6:::1]>', 'user@[IPv6:::1]'],
  ] as const) {
    test(`${path} is ${address}`, () => {
      assert.equal(parsePath(path)?.address, address);
    });
  }

  for (const path of [
    '',
    'user@example.com',
    '<user@example.com',
    'user@example.com>',
    '<user@example.com>>',
    '<<user@example.com>>',
    '< user@example.com>',
    '< >',
    '<user>',
    '<postmaster>',
    '<@one.example>',
    '<@one.example user@example.com>',
    '<one.example:user@example.com>',
    '<@one.example,two.example:user@example.com>',
    '<@one.example,:user@example.com>',
    '<@one.example:>',
    '<@one.example:@two.example:user@example.com>',
    '<user@example.com>\r\nRCPT TO:<evil@example.com>',
    '<user@example.com\0>',
  ]) {
    test(`${JSON.stringify(path)} is refused`, () => {
      assert.throws(() => parsePath(path), invalid);
    });
  }

  test('names the postmaster without a domain where there is one to put in', () => {
    const domain = parseDomain('example.com');
    assert.equal(parsePath('<Postmaster>', domain)?.address, 'Postmaster@example.com');
    assert.throws(() => parsePath('<user>', domain), invalid);
  });

  test('of any text at all is a path or a problem', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
        for (const attempt of [text, `<${text}>`, `<@a:${text}>`]) {
          try {
            parsePath(attempt);
          } catch (error) {
            assert.ok(invalid(error), String(error));
          }
        }
      }),
      { numRuns: 3000 },
    );
  });
});

describe('the argument of MAIL and RCPT', () => {
  test('is a path and what follows it', () => {
    assert.deepEqual(parsePathArgument('<user@example.com> SIZE=1 BODY=8BITMIME '), {
      path: '<user@example.com>',
      rest: 'SIZE=1 BODY=8BITMIME',
      ascii: true,
    });
  });

  test('may hold brackets and blanks within quotes', () => {
    const { path, rest } = parsePathArgument('<"a> SIZE=1 \\" >"@example.com> SIZE=2');
    assert.equal(path, '<"a> SIZE=1 \\" >"@example.com>');
    assert.equal(rest, 'SIZE=2');
  });

  test('may have blanks in front', () => {
    assert.equal(parsePathArgument('  <>').path, '<>');
  });

  test('needs SMTPUTF8 for a domain in U-labels too', () => {
    assert.equal(parsePathArgument('<user@bücher.example>').ascii, false);
  });

  for (const argument of [
    '',
    '<',
    'user@example.com',
    '<user@example.com',
    '<"user@example.com>',
    '<a@b>SIZE=1',
    'x <a@b>',
  ]) {
    test(`${JSON.stringify(argument)} is refused`, () => {
      assert.throws(() => parsePathArgument(argument), invalid);
    });
  }
});
