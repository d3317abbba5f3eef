import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { decodeCharset, effectiveCharset } from '../../../core/mime/charset.js';
import { decodedSize, decodeTransfer } from '../../../core/mime/decode.js';

const decode = (text: string, encoding: string) =>
  decodeTransfer(Buffer.from(text, 'latin1'), encoding).toString('latin1');

suite('transfer encodings', () => {
  test('base64 reads what base64 wrote, however its lines are cut', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 1, max: 80 }), (bytes, width) => {
        const text = Buffer.from(bytes)
          .toString('base64')
          .replace(new RegExp(`.{${width}}`, 'g'), '$&\r\n');
        const encoded = Buffer.from(text);
        assert.deepEqual(decodeTransfer(encoded, 'BASE64'), Buffer.from(bytes));
        assert.equal(decodedSize(encoded, 'base64'), bytes.length);
      }),
    );
  });

  test('base64 with junk, padding in the middle or a cut end gives what can be read', () => {
    assert.equal(decode('YW*J\0j -_', 'base64'), 'abc');
    assert.equal(decode('YQ==YmM=', 'base64'), 'abc');
    assert.equal(decode('YWJjZA', 'base64'), 'abcd');
    assert.equal(decode('YWJjZ', 'base64'), 'abc');
    assert.equal(decode('====', 'base64'), '');
    const junk = Buffer.alloc(10 * 1024 * 1024, '=*A');
    assert.equal(decodeTransfer(junk, 'base64').length, decodedSize(junk, 'base64'));
  });

  test('quoted-printable is read with soft line ends, trailing blanks and mistakes', () => {
    const cases: readonly (readonly [string, string])[] = [
      ['a=3Db=C3=BC', 'a=b\xc3\xbc'],
      ['soft=\r\nline', 'softline'],
      ['soft= \t\r\nline', 'softline'],
      ['soft=\nline', 'softline'],
      ['blanks  \t\r\nnext', 'blanks\r\nnext'],
      ['kept=20\r\nnext', 'kept \r\nnext'],
      ['1=2 =ZZ =', '1=2 =ZZ '],
      ['lower=c3=bc', 'lower\xc3\xbc'],
    ];
    for (const [written, read] of cases) assert.equal(decode(written, 'quoted-printable'), read);
  });

  test('quoted-printable never throws, and its computed size is right', () => {
    const piece = fc.constantFrom('=', ' ', '\r\n', '\n', '\r', '=3D', '=4', 'x', '\t', '\0');
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
        const bytes = Buffer.from(pieces.join(''), 'latin1');
        assert.equal(decodeTransfer(bytes, 'quoted-printable').length, decodedSize(bytes, 'quoted-printable'));
      }),
    );
  });

  test('other encodings leave the bytes alone', () => {
    for (const encoding of ['7bit', '8bit', 'binary', 'x-uuencode', '']) assert.equal(decode('a=3D', encoding), 'a=3D');
  });
});

suite('charsets', () => {
  test('known labels decode, unknown and lying ones are met by what the bytes look like', () => {
    assert.equal(decodeCharset(Buffer.from('é€'), 'utf-8'), 'é€');
    assert.equal(decodeCharset(Buffer.from([0x63, 0x61, 0x66, 0xe9]), 'utf-8'), 'café');
    assert.equal(decodeCharset(Buffer.from([0xe9, 0x80]), 'no-such-charset'), 'é€');
    assert.equal(decodeCharset(Buffer.from('é'), 'us-ascii'), 'é');
    assert.equal(decodeCharset(Buffer.from([0xcf, 0xf0, 0xe8]), 'windows-1251'), 'При');
    assert.equal(decodeCharset(Buffer.from([0x82, 0xb1]), 'Shift_JIS'), 'こ');
  });

  test('a UTF-8 text that was cut in the middle of a character is still UTF-8', () => {
    assert.equal(effectiveCharset(Buffer.from('éé').subarray(0, 3), ''), 'utf-8');
  });

  test('one broken byte does not spoil a UTF-8 text', () => {
    const bytes = Buffer.concat([Buffer.from('äöü'), Buffer.from([0xff]), Buffer.from('ß')]);
    assert.equal(decodeCharset(bytes, 'utf-8'), 'äöü\ufffdß');
  });
});
