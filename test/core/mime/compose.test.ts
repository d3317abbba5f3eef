import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { suite, test } from 'node:test';
import { parseAddressList } from '../../../core/mime/address-list.js';
import { decodeCharset } from '../../../core/mime/charset.js';
import {
  composeMessage,
  type Composition,
  correspondent,
  encodeAttachment,
  type RawPart,
} from '../../../plugins/store/mime/compose.js';
import { decodeTransfer } from '../../../core/mime/decode.js';
import { readStructure } from '../../../core/mime/structure.js';
import { subjectOf } from '../../../plugins/store/mime/summary.js';

const plain: Composition = {
  from: correspondent('', 'ann@example.org'),
  to: [],
  cc: [],
  bcc: [],
  subject: '',
  date: 'Sat, 21 Nov 2026 10:00:00 +0000',
  messageId: '<one@example.org>',
  inReplyTo: null,
  references: [],
  text: 'Hello.',
  html: null,
  kept: Buffer.alloc(0),
  parts: [],
};

async function collect(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

const compose = (given: Partial<Composition>) => collect(composeMessage({ ...plain, ...given }));

async function* bytes(...pieces: readonly Buffer[]) {
  for (const piece of pieces) yield await Promise.resolve(piece);
}

async function attachment(filename: string, content: Buffer, cut = content.length): Promise<RawPart> {
  const about = { attachmentId: 'id1', filename, contentType: 'application/pdf' };
  const pieces = [content.subarray(0, cut), content.subarray(cut)];
  const whole = await collect(encodeAttachment(about, bytes(...pieces)));
  return { open: () => bytes(whole) };
}

suite('composing', () => {
  test('people, subject and references come back from the header as they were given', async () => {
    const people = [
      correspondent('Doe, "Jo" \\ x', 'jo@example.org'),
      correspondent('Änne Größer '.repeat(8), 'aenne@example.org'),
      correspondent('', '"a b"@example.org'),
      correspondent('名前', 'dömain@example.org'),
    ];
    const subject = `Grüße ${'sehr lang '.repeat(40)}🎉`;
    const references = Array.from({ length: 30 }, (_, n) => `<reference-number-${n}@example.org>`);
    const message = await compose({ to: people, cc: people, bcc: people, subject, references, inReplyTo: '<x@y>' });
    const { header } = readStructure(message);
    for (const key of ['to', 'cc', 'bcc']) {
      assert.deepEqual(
        parseAddressList(header.first(key) ?? '').map(({ name, address }) => [name, address]),
        people.map(({ name, address }) => [name.replace(/\s+/g, ' '), address.address]),
      );
    }
    assert.equal(subjectOf(header), subject);
    assert.equal(header.first('references'), references.join(' '));
    assert.equal(header.first('in-reply-to'), '<x@y>');
    assert.ok(
      message
        .toString('latin1')
        .split('\r\n')
        .every((line) => line.length <= 998),
    );
  });

  test('the header has only what was given', async () => {
    const { header } = readStructure(await compose({}));
    const names = header.fields.map(({ key }) => key).sort();
    assert.deepEqual(names, [
      'content-transfer-encoding',
      'content-type',
      'date',
      'from',
      'message-id',
      'mime-version',
    ]);
  });

  const texts = ['', 'x', 'one\ntwo\n', '\n\n', '.\n..\nFrom here\n', 'ä'.repeat(5000), `${'long '.repeat(400)}\nend`];
  for (const [index, text] of texts.entries()) {
    test(`text comes back to the character: case ${index}`, async () => {
      const parts = [await attachment('a.pdf', Buffer.from('x'))];
      for (const given of [{ text }, { text, parts }, { text, html: '<b>x</b>' }, { text, html: '<b>x</b>', parts }]) {
        const message = await compose(given);
        const part = readStructure(message).parts.find(({ contentType }) => contentType === 'text/plain');
        assert.ok(part !== undefined);
        assert.doesNotMatch(message.toString('latin1'), /(?<!\r)\n/, 'every line ends in CRLF');
        const body = decodeTransfer(message.subarray(part.bodyOffset, part.end), part.encoding);
        assert.equal(decodeCharset(body, part.charset).replaceAll('\r\n', '\n').replace(/\n$/, ''), text);
      }
    });
  }

  test('an attachment is the same bytes, whatever its name, its length and the cuts between its pieces', async () => {
    const names = ['a.pdf', 'ä"b\'c.pdf', 'with blank; and=signs.txt', '日本語'.repeat(30)];
    for (const [index, size] of [0, 1, 56, 57, 58, 10_000].entries()) {
      const content = Buffer.from(Array.from({ length: size }, (_, n) => (n * 31) & 255));
      const name = names[index % names.length] ?? '';
      const message = await compose({ parts: [await attachment(name, content, size >> 1)] });
      const part = readStructure(message).parts.at(-1);
      assert.ok(part !== undefined);
      assert.equal(part.filename, name);
      assert.equal(part.disposition, 'attachment');
      assert.deepEqual(decodeTransfer(message.subarray(part.bodyOffset, part.end), part.encoding), content);
    }
  });

  test('text that looks like a path or a URL is only text', async () => {
    const message = await compose({ text: '/etc/passwd', html: 'http://127.0.0.1:1/x' });
    assert.match(message.toString(), /\/etc\/passwd/);
    assert.match(message.toString(), /http:\/\/127\.0\.0\.1:1\/x/);
  });

  const python = spawnSync('python3', ['--version']).status === 0;
  test('an independent reader finds the same parts', { skip: !python && 'no python3' }, async () => {
    const parts = [await attachment('ä b.pdf', Buffer.from('PDF')), await attachment('second.pdf', Buffer.from('two'))];
    const message = await compose({ subject: 'Grüße', text: 'Hällo\n', html: '<p>Hällo</p>', parts });
    const script = `
import sys, json, email, email.policy
m = email.message_from_bytes(sys.stdin.buffer.read(), policy=email.policy.default)
leaves = [p for p in m.walk() if not p.is_multipart()]
print(json.dumps({"subject": m["subject"], "defects": [str(d) for p in m.walk() for d in p.defects],
  "parts": [[p.get_content_type(), p.get_filename(), p.get_payload(decode=True).decode()] for p in leaves]}))`;
    const { stdout } = spawnSync('python3', ['-c', script], { input: message, encoding: 'utf8' });
    assert.deepEqual(JSON.parse(stdout), {
      subject: 'Grüße',
      defects: [],
      parts: [
        ['text/plain', null, 'Hällo\r\n\r\n'],
        ['text/html', null, '<p>Hällo</p>\r\n'],
        ['application/pdf', 'ä b.pdf', 'PDF'],
        ['application/pdf', 'second.pdf', 'two'],
      ],
    });
  });
});
