import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { dateOf, plainText, summarise } from '../../../plugins/store/mime/summary.js';

const summary = (text: string, size = Buffer.byteLength(text)) => summarise(Buffer.from(text), size);

suite('the summary of a message', () => {
  test('is read from the beginning of the file', () => {
    const head =
      'From: "A, B" <a@b>\r\nTo: c@d\r\nSubject: =?utf-8?Q?=E2=82=AC?=\r\nMessage-ID: <1@x>\r\n\r\n  Hello\r\n\r\nworld  ';
    assert.deepEqual(summary(head), {
      from: { name: 'A, B', address: 'a@b' },
      to: [{ name: '', address: 'c@d' }],
      subject: '€',
      date: null,
      internetMessageId: '<1@x>',
      hasAttachments: false,
      snippet: 'Hello world',
    });
  });

  test('of an empty message, or one without a header, is empty and no error', () => {
    assert.equal(summary('').from, null);
    assert.equal(summary('').subject, '');
    assert.equal(summary('just text\r\nmore text').snippet, '');
  });

  test('takes the words of HTML when there is no text, without styles, scripts and hidden spaces', () => {
    const html =
      '<head><title>t</title><style>p{x}</style></head><p>Hi&nbsp;&amp; bye\u200b&#8364;<script>x</script></p>';
    assert.equal(summary(`Content-Type: text/html; charset=utf-8\r\n\r\n${html}`).snippet, 'Hi & bye €');
  });

  test('sees attachments, and assumes them after what was not read', () => {
    const mixed = 'Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntext\r\n';
    assert.equal(summary(mixed).hasAttachments, false);
    assert.equal(summary(mixed, 1_000_000).hasAttachments, true);
    assert.equal(summary(`${mixed}--b\r\nContent-Type: application/zip\r\n\r\nx\r\n`).hasAttachments, true);
  });

  test('cuts what is long', () => {
    const long = summary(`Subject: ${'s'.repeat(50_000)}\r\nTo: ${'a@b, '.repeat(5000)}\r\n\r\n${'w '.repeat(5000)}`);
    assert.ok(long.subject.length <= 1000 && long.to.length <= 20 && long.snippet.length <= 160);
    assert.ok(long.snippet.endsWith('…'));
  });

  test('dates are read in the ways they are written, or not at all', () => {
    assert.equal(dateOf('Sat, 21 Nov 2026 10:00:00 +0100 (CET)'), '2026-11-21T09:00:00.000Z');
    assert.equal(dateOf('21 Nov 2026 10:00 GMT'), '2026-11-21T10:00:00.000Z');
    assert.equal(dateOf('yesterday'), null);
    assert.equal(dateOf(undefined), null);
    assert.equal(dateOf('('.repeat(100_000)), null);
  });

  test('never throws, whatever the head is', () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 500 }), (bytes) => void summarise(Buffer.from(bytes), 10_000)));
    const piece = fc.constantFrom(
      '<',
      '>',
      '<!--',
      '-->',
      '<style>',
      '</style',
      '<p a="',
      '&#x0;',
      '&#xD800;',
      '&amp;',
      'x',
    );
    fc.assert(fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => void plainText(pieces.join(''))));
  });
});
