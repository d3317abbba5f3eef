import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { findPart, isAttachment, readStructure, structureLimits } from '../../../core/mime/structure.js';
import { readableParts } from '../../../plugins/store/mime/summary.js';

const lines = (...all: readonly string[]) => Buffer.from(all.map((line) => `${line}\r\n`).join(''));
const outline = (bytes: Buffer) => readStructure(bytes).parts.map(({ part, contentType }) => `${part} ${contentType}`);
const bodies = (bytes: Buffer) =>
  readStructure(bytes)
    .parts.filter(({ boundary }) => boundary === undefined)
    .map(({ bodyOffset, end }) => bytes.toString('latin1', bodyOffset, end));

const nested = lines(
  'Content-Type: multipart/mixed; boundary=outer',
  '',
  'preamble',
  '--outer',
  'Content-Type: multipart/alternative; boundary="in ner"',
  '',
  '--in ner',
  '',
  'plain',
  '--in ner',
  'Content-Type: text/html',
  '',
  '<p>rich</p>',
  '--in ner--',
  'epilogue of the inner',
  '--outer',
  'Content-Type: message/rfc822',
  '',
  'Subject: forwarded',
  'Content-Type: multipart/mixed; boundary=fwd',
  '',
  '--fwd',
  '',
  'inside',
  '--fwd--',
  '--outer',
  'Content-Type: application/pdf',
  'Content-Disposition: attachment; filename=a.pdf',
  '',
  'PDF',
  '--outer--',
  'epilogue',
);

suite('the MIME tree', () => {
  test('parts are numbered as in IMAP, and bodies end in front of the line end of their boundary', () => {
    assert.deepEqual(outline(nested), [
      'TEXT multipart/mixed',
      '1 multipart/alternative',
      '1.1 text/plain',
      '1.2 text/html',
      '2 message/rfc822',
      '2.TEXT multipart/mixed',
      '2.1 text/plain',
      '3 application/pdf',
    ]);
    const structure = readStructure(nested);
    const bodyOf = (number: string) => {
      const part = findPart(structure, number);
      return part === undefined ? undefined : nested.toString('latin1', part.bodyOffset, part.end);
    };
    assert.equal(bodyOf('1.1'), 'plain');
    assert.equal(bodyOf('1.2'), '<p>rich</p>');
    assert.equal(bodyOf('2.1'), 'inside');
    assert.equal(bodyOf('3'), 'PDF');
    assert.ok(bodyOf('2')?.startsWith('Subject: forwarded'));
    assert.equal(bodyOf('4'), undefined);
  });

  test('a message without parts is part 1', () => {
    assert.deepEqual(outline(lines('Subject: x', '', 'text')), ['1 text/plain']);
    assert.deepEqual(outline(Buffer.alloc(0)), ['1 text/plain']);
    assert.deepEqual(outline(lines('Content-Type: multipart/mixed', '', 'no boundary')), ['1 multipart/mixed']);
    assert.deepEqual(outline(lines('Content-Type: nonsense', '', 'x')), ['1 application/octet-stream']);
  });

  test('missing end boundaries, empty parts and blanks after boundaries are tolerated', () => {
    const bytes = lines('Content-Type: multipart/mixed; boundary=b', '', '--b  ', '', 'one', '--b', '--b', '', 'three');
    assert.deepEqual(bodies(bytes), ['one', '', 'three\r\n']);
  });

  test('the boundary of an outer multipart ends the inner ones, even inside of a header', () => {
    const bytes = lines(
      'Content-Type: multipart/mixed; boundary=a',
      '',
      '--a',
      'Content-Type: multipart/mixed; boundary=aa',
      '',
      '--aa',
      'X-Cut: here',
      '--a',
      '',
      'second',
      '--a--',
    );
    assert.deepEqual(outline(bytes), ['TEXT multipart/mixed', '1 multipart/mixed', '1.1 text/plain', '2 text/plain']);
    assert.deepEqual(bodies(bytes), ['', 'second']);
  });

  test('a boundary that is a beginning of another, or used twice, is kept apart', () => {
    const bytes = lines(
      'Content-Type: multipart/mixed; boundary=x',
      '',
      '--x',
      'Content-Type: multipart/mixed; boundary=x',
      '',
      '--x',
      '',
      'inner',
      '--x--',
      '--xy',
      '--x',
      '',
      'outer',
      '--x--',
    );
    assert.deepEqual(bodies(bytes), ['inner', 'outer']);
  });

  test('a boundary of 2,048 characters works, and a line that only begins like one is content', () => {
    const boundary = 'b'.repeat(2048);
    const bytes = lines(
      `Content-Type: multipart/mixed; boundary=${boundary}`,
      '',
      `--${boundary}`,
      '',
      'x',
      `--${boundary}zzz`,
    );
    assert.deepEqual(bodies(bytes), [`x\r\n--${boundary}zzz\r\n`]);
  });

  test('dashes at the end of a boundary are part of it', () => {
    const bytes = lines('Content-Type: multipart/mixed; boundary="b--"', '', '--b--', '', 'one', '--b----', 'gone');
    assert.deepEqual(bodies(bytes), ['one']);
  });

  test('a digest holds messages', () => {
    const bytes = lines(
      'Content-Type: multipart/digest; boundary=d',
      '',
      '--d',
      '',
      'Subject: one',
      '',
      'text',
      '--d--',
    );
    assert.deepEqual(outline(bytes), ['TEXT multipart/digest', '1 message/rfc822', '1.1 text/plain']);
  });

  test('depth has a limit: 100, 1,000 and 10,000 levels end in a leaf', () => {
    for (const depth of [99, 1000, 10_000]) {
      const open = Array.from({ length: depth }, (_, n) => [
        `Content-Type: multipart/mixed; boundary=b${n}`,
        '',
        `--b${n}`,
      ]);
      const structure = readStructure(lines(...open.flat(), '', 'deep'));
      assert.equal(structure.truncated, depth > structureLimits.depth);
      assert.ok(structure.parts.length <= structureLimits.depth + 1);
    }
    const messages = readStructure(
      lines(...Array.from({ length: 2000 }, () => ['Content-Type: message/rfc822', '']).flat()),
    );
    assert.equal(messages.truncated, true);
    assert.ok(messages.parts.length <= structureLimits.depth + 1);
  });

  test('20,000 parts are read as far as the limit, the rest is inside of the last one', () => {
    const part = ['--b', '', 'x'];
    const bytes = lines(
      'Content-Type: multipart/mixed; boundary=b',
      '',
      ...Array.from({ length: 20_000 }, () => part).flat(),
    );
    const structure = readStructure(bytes);
    assert.equal(structure.parts.length, structureLimits.parts);
    assert.equal(structure.truncated, true);
    assert.equal(structure.parts.at(-1)?.end, bytes.length);
  });

  test('never throws, and every part lies inside of its parent, whatever it is given', () => {
    const piece = fc.constantFrom(
      'Content-Type: multipart/mixed; boundary=a\r\n',
      'Content-Type: multipart/mixed; boundary=b\n',
      'Content-Type: message/rfc822\r\n',
      '\r\n',
      '\n',
      '--a\r\n',
      '--b\r\n',
      '--a--\r\n',
      '--b--',
      '--',
      'text',
      '\r',
      '\0',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
        const bytes = Buffer.from(pieces.join(''), 'latin1');
        const { parts } = readStructure(bytes);
        for (const part of parts) {
          assert.ok(part.headerOffset <= part.bodyOffset && part.bodyOffset <= part.end && part.end <= bytes.length);
          for (const child of part.children) {
            assert.ok(child.headerOffset >= part.bodyOffset && child.end <= part.end);
          }
        }
        assert.equal(new Set(parts.map(({ part }) => part)).size, parts.length);
      }),
      { numRuns: 500 },
    );
  });
});

suite('what a reader sees of the tree', () => {
  test('of alternatives one text and one HTML are read, and what is inside of forwarded messages is not', () => {
    const { text, html } = readableParts(readStructure(nested));
    assert.deepEqual([text.map(({ part }) => part), html.map(({ part }) => part)], [['1.1'], ['1.2']]);
  });

  test('attachments are what is neither read nor shown by the HTML', () => {
    const attached = readStructure(nested).parts.filter((part) => isAttachment(part));
    assert.deepEqual(
      attached.map(({ part, filename }) => [part, filename]),
      [
        ['2', undefined],
        ['3', 'a.pdf'],
      ],
    );
  });

  test('a text with the disposition of a file is one, and a text that only has a name is read', () => {
    const isFile = (...header: readonly string[]) => isAttachment(readStructure(lines(...header, '', 'x')).root);
    assert.equal(isFile('Content-Type: text/plain', 'Content-Disposition: inline; filename=notes.txt'), true);
    assert.equal(isFile('Content-Type: text/plain', 'Content-Disposition: inline'), false);
    assert.equal(isFile('Content-Type: text/plain; name=notes.txt'), false);
  });

  test('a file name is a last component without controls and direction marks', () => {
    const nameOf = (filename: string) =>
      readStructure(lines(`Content-Disposition: attachment; filename="${filename}"`, '')).root.filename;
    assert.equal(nameOf('../../etc/passwd'), 'passwd');
    assert.equal(nameOf('C:\\\\dir\\\\x.txt'), 'x.txt');
    assert.equal(nameOf('gpj\u202e.exe'), 'gpj.exe');
    assert.equal(nameOf('..'), undefined);
    assert.equal(nameOf('a/'), undefined);
    assert.ok((nameOf('x'.repeat(5000)) ?? '').length <= 200);
  });
});
