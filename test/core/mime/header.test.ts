import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { headerLimits, scanHeader } from '../../../core/mime/header.js';

const scan = (text: string) => scanHeader(Buffer.from(text));

suite('the header scanner', () => {
  test('gives fields in order, unfolded, and the offset of the body', () => {
    const text = 'From: a@b\r\nSubject: one\r\n two\r\n\tthree\r\nX-Empty:\r\n\r\nbody';
    const header = scan(text);
    assert.deepEqual(
      header.fields.map((field) => [field.name, header.value(field)]),
      [
        ['From', 'a@b'],
        ['Subject', 'one two\tthree'.replace('\t', ' ')],
        ['X-Empty', ''],
      ],
    );
    assert.equal(text.slice(header.bodyOffset), 'body');
    assert.equal(header.complete, true);
  });

  test('reads bare LF line ends, and says when there is no empty line', () => {
    const header = scan('A: 1\nB: 2\n\nbody');
    assert.deepEqual([header.first('a'), header.first('b'), header.bodyOffset], ['1', '2', 11]);
    const cut = scan('A: 1\r\nB: 2');
    assert.deepEqual([cut.complete, cut.first('b'), cut.bodyOffset], [false, '2', 10]);
  });

  test('passes over what is no field and keeps what follows', () => {
    const header = scan('From ann Sat Nov 21 10:00:00 2026\n no colon here\n: nameless\nGood : yes\n\n');
    assert.deepEqual(
      header.fields.map(({ name }) => name),
      ['Good'],
    );
    assert.equal(header.first('good'), 'yes');
  });

  test('treats names like __proto__ and constructor as any other', () => {
    const header = scan('__proto__: a\r\nconstructor: b\r\nhasOwnProperty: c\r\n\r\n');
    assert.deepEqual(
      ['__proto__', 'constructor', 'hasownproperty', 'tostring'].map((key) => header.first(key)),
      ['a', 'b', 'c', undefined],
    );
  });

  test('counts fields above the limit, and cuts long values and blocks', () => {
    const many = scan(`${'X: y\r\n'.repeat(200_000)}\r\nbody`);
    assert.equal(many.fields.length, headerLimits.fields);
    assert.equal(many.dropped, 200_000 - headerLimits.fields);
    assert.equal(many.bodyOffset, 200_000 * 6 + 2);
    const long = scan(`Subject: ${'a'.repeat(1_000_000)}\r\n\r\nbody`);
    assert.equal(long.first('subject')?.length, headerLimits.valueBytes - 1);
    const text = `X: ${'a'.repeat(headerLimits.blockBytes)}\r\nY: z\r\n\r\nbody`;
    assert.equal(text.slice(scan(text).bodyOffset), 'body');
    const block = scan('X: y\r\n'.padEnd(headerLimits.blockBytes + 1, 'no field\r\n'));
    for (const header of [many, long, scan(text), block]) assert.equal(header.isWhole(0), false);
  });

  test('is whole with its empty line, or with all of the message', () => {
    assert.equal(scan('A: 1\r\n\r\n').isWhole(1000), true);
    assert.deepEqual(
      [8, 9].map((size) => scan('A: 1\r\nB:').isWhole(size)),
      [true, false],
    );
  });

  test('takes blanks and folds between a name and its colon', () => {
    for (const blanks of [' '.repeat(1000), '\r\n \t', '\v\f']) {
      assert.deepEqual([...scan(`From${blanks}: a@b\r\nX: y\r\n\r\n`).all('from')], ['a@b']);
    }
  });

  test('reads raw 8-bit values as UTF-8, else as windows-1252, and takes control characters out', () => {
    assert.equal(scan('S: Grüße\r\n\r\n').first('s'), 'Grüße');
    assert.equal(scanHeader(Buffer.from('S: Gr\xfc\xdfe\r\n\r\n', 'latin1')).first('s'), 'Grüße');
    assert.equal(scan('S: a\0b\x1b[31m\r\n\r\n').first('s'), 'a b [31m');
  });

  test('never throws, never leaves the buffer, and keeps offsets in order, whatever it is given', () => {
    const piece = fc.constantFrom('A', ':', ' ', '\t', '\r', '\n', '\r\n', '\r\n\r\n', 'From: x', '\0', '\xff', '--b');
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), fc.nat(20), (pieces, start) => {
        const bytes = Buffer.from(pieces.join(''), 'latin1');
        const header = scanHeader(bytes, Math.min(start, bytes.length));
        assert.ok(header.bodyOffset <= bytes.length);
        let last = Math.min(start, bytes.length);
        for (const field of header.fields) {
          assert.ok(field.offset >= last && field.valueOffset > field.offset && field.end <= header.bodyOffset);
          assert.doesNotMatch(header.value(field), /\p{Cc}/u);
          last = field.end;
        }
      }),
    );
  });

  test('finds every field that was written, however it was folded', () => {
    const name = fc.stringMatching(/^[A-Za-z][A-Za-z0-9-]{0,20}$/);
    const words = fc.array(fc.stringMatching(/^[!-~]{1,12}$/), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(fc.array(fc.tuple(name, words), { maxLength: 20 }), (fields) => {
        const text = fields.map(([key, value]) => `${key}: ${value.join('\r\n ')}\r\n`).join('');
        const header = scan(`${text}\r\nbody`);
        assert.deepEqual(
          header.fields.map((field) => [field.name, header.value(field)]),
          fields.map(([key, value]) => [key, value.join(' ')]),
        );
      }),
    );
  });
});
