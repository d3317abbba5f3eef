import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { scanHeader } from '../../../core/mime/header.js';
import { HeaderFilter } from '../../../core/spool/edited.js';

const message = [
  'Subject: one\r\n',
  'X-Spam: a;\r\n\tb\r\n c\r\n',
  'not a field\r\n',
  'x-spam : d\r\n',
  'X-Spammer: stays\r\n',
  '\r\n',
  'X-Spam: in the body\r\n\r\nend',
];
const expected = [message[0], message[2], message[4], message[5], message[6]].join('');

test('fields are removed with their continuation lines, wherever the pieces are cut', () => {
  const bytes = Buffer.from(message.join(''));
  for (let cut = 0; cut <= bytes.length; cut++) {
    assert.equal(filtered(['X-SPAM'], [bytes.subarray(0, cut), bytes.subarray(cut)]), expected);
  }
  assert.equal(
    filtered(
      ['x-spam'],
      Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)),
    ),
    expected,
  );
});

test('other lines without a colon, and a message that ends within a field name, stay', () => {
  for (const text of ['', 'Subj', 'x'.repeat(1000), `${'x'.repeat(1000)}: y\r\n`, '\r\nSubject: body\r\n']) {
    assert.equal(filtered(['subject'], [Buffer.from(text)]), text);
    assert.equal(
      filtered(
        ['subject'],
        Array.from(Buffer.from(text), (byte) => Buffer.of(byte)),
      ),
      text,
    );
  }
});

test('a field that a header scan reads is removed, however it is written', () => {
  const pieces = [
    'Bcc',
    'bCC',
    'X',
    ':',
    ': a@b',
    ' ',
    '\t',
    '\r',
    '\n',
    '\r\n',
    '\f',
    '\v',
    '\0',
    '\x01',
    '\x7f',
    '\xa0',
  ];
  const line = fc.array(fc.constantFrom(...pieces), { maxLength: 6 }).map((some) => some.join(''));
  const header = fc.array(line, { maxLength: 6 }).map((lines) => lines.join('\r\n'));
  fc.assert(
    fc.property(header, fc.nat(40), (text, cut) => {
      const bytes = Buffer.from(text, 'latin1');
      const left = filtered(['bcc'], [bytes.subarray(0, cut), bytes.subarray(cut)]);
      assert.equal(scanHeader(Buffer.from(left)).first('bcc'), undefined, JSON.stringify(text));
    }),
    { numRuns: 5000 },
  );
});

function filtered(remove: readonly string[], pieces: readonly Buffer[]): string {
  const filter = new HeaderFilter(remove);
  const kept = pieces.flatMap((piece) => filter.push(piece).map((part) => Buffer.from(part)));
  return Buffer.concat([...kept, filter.end()]).toString();
}
