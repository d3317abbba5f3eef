import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { decodeWords } from '../../../core/mime/encoded-words.js';

suite('encoded words', () => {
  const cases: readonly (readonly [string, string])[] = [
    ['=?utf-8?Q?Gr=C3=BC=C3=9Fe?= an alle', 'Grüße an alle'],
    ['=?UTF-8?b?R3LDvMOfZQ==?=', 'Grüße'],
    ['=?iso-8859-1?q?Andr=E9_P?= <a@b>', 'André P <a@b>'],
    ['=?utf-8?Q?a?= =?utf-8?Q?b?=\t=?iso-8859-1?Q?=E9?=', 'abé'],
    ['a =?utf-8?Q?b?= c', 'a b c'],
    ['=?utf-8?B?4oKs?= =?utf-8?B?4g==?= =?utf-8?B?gqw=?=', '€€'],
    ['=?utf-8*en?Q?x?=', 'x'],
    ['=?iso-2022-jp?B?GyRCJDMkcxsoQg==?=', 'こん'],
    ['=?x-nothing?Q?=41?=', 'A'],
    ['=?utf-8?X?abc?=', '=?utf-8?X?abc?='],
    ['=?utf-8?Q?unfinished', '=?utf-8?Q?unfinished'],
    ['=?utf-8?Q?=0D=0ABcc:_x?=', '  Bcc: x'],
    ['no words', 'no words'],
  ];
  for (const [written, read] of cases) {
    test(`${JSON.stringify(written)} reads ${JSON.stringify(read)}`, () => assert.equal(decodeWords(written), read));
  }

  test('what is encoded as one word is read back', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        const printable = text.replace(/\p{Cc}/gu, ' ').replaceAll('=?', '');
        assert.equal(decodeWords(`=?utf-8?B?${Buffer.from(printable).toString('base64')}?=`), printable);
      }),
    );
  });

  test('a header full of beginnings of words is read as it is', () => {
    const hostile = '=?a?Q?'.repeat(100_000);
    assert.equal(decodeWords(hostile), hostile);
  });
});
