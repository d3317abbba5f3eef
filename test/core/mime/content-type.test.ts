import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { parseParameters } from '../../../core/mime/content-type.js';

const read = (text: string) => {
  const { value, parameters } = parseParameters(text);
  return [value, Object.fromEntries(parameters)];
};

suite('values with parameters', () => {
  const cases: readonly (readonly [string, string, Record<string, string>])[] = [
    ['text/plain; charset=UTF-8', 'text/plain', { charset: 'UTF-8' }],
    ['Text/HTML;Charset="iso-8859-1"', 'text/html', { charset: 'iso-8859-1' }],
    ['multipart/mixed; boundary="a;b=\\"c"', 'multipart/mixed', { boundary: 'a;b="c' }],
    ['text/plain; (comment; x=y) charset=utf-8', 'text/plain', { charset: 'utf-8' }],
    ['attachment; filename="=?utf-8?Q?=C3=BC.txt?="', 'attachment', { filename: 'ü.txt' }],
    ["attachment; filename*=UTF-8''a%20%E2%82%AC.txt", 'attachment', { filename: 'a €.txt' }],
    ["attachment; filename*0*=iso-8859-1'en'a%E9; filename*1=b.txt", 'attachment', { filename: 'aéb.txt' }],
    ['attachment; filename*1=b; filename*0=a', 'attachment', { filename: 'ab' }],
    ["attachment; filename=plain; filename*=utf-8''better", 'attachment', { filename: 'better' }],
    ['text/plain; charset=a; charset=b', 'text/plain', { charset: 'a' }],
    ['text/plain; charset', 'text/plain', {}],
    ['; charset=x', '', { charset: 'x' }],
    ['text/plain; name="open', 'text/plain', { name: 'open' }],
  ];
  for (const [written, value, parameters] of cases) {
    test(`${JSON.stringify(written)} is understood`, () => assert.deepEqual(read(written), [value, parameters]));
  }

  test('names of parameters are never properties', () => {
    const { parameters } = parseParameters('a/b; __proto__=x; constructor=y');
    assert.equal(parameters.get('__proto__'), 'x');
    assert.equal(parameters.get('toString'), undefined);
  });

  test('20,000 pieces of one value are read as far as the limit', () => {
    const pieces = Array.from({ length: 20_000 }, (_, index) => `; filename*${index}=x`).join('');
    const filename = parseParameters(`attachment${pieces}`).parameters.get('filename') ?? '';
    assert.match(filename, /^x{100,1000}$/);
  });

  test('never throws', () => {
    const piece = fc.constantFrom(';', '=', '"', '\\', '(', ')', '*', '0', "'", '%', '%4', 'a', ' ', 'charset');
    fc.assert(fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => void parseParameters(pieces.join(''))));
  });
});
