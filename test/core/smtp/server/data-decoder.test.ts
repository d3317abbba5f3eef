import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { DataViolation } from '../../../../core/smtp/protocol/replies.js';
import { DataDecoder, type DataDecoderOptions } from '../../../../core/smtp/server/dot-decoder.js';

const usual: DataDecoderOptions = { lineEndings: 'normalise', lineBytes: 65_536, messageBytes: 1 << 24 };

interface Decoded {
  readonly text: string;
  readonly rest: string;
  readonly ended: boolean;
  readonly violation: DataViolation | undefined;
}

function decode(pieces: readonly string[], options: DataDecoderOptions = usual): Decoded {
  const decoder = new DataDecoder(options);
  let text = '';
  let rest = '';
  for (const piece of pieces) {
    if (decoder.ended) {
      rest += piece;
      continue;
    }
    text += decoder.write(Buffer.from(piece, 'latin1')).toString('latin1');
    rest += decoder.rest.toString('latin1');
  }
  return { text, rest, ended: decoder.ended, violation: decoder.violation };
}

/** The rules said naively, on the whole text at once. */
function reference(wire: string): Decoded {
  const at = `\r\n${wire}`.indexOf('\r\n.\r\n');
  assert.ok(at >= 0, 'the reference needs an ended text');
  const text = wire
    .slice(0, at)
    .split('\r\n')
    .map((line) => (line.startsWith('.') ? line.slice(1) : line))
    .map((line) => line.replace(/[\r\n]/g, '\r\n'))
    .join('\r\n');
  const violation = text.includes('\0') ? 'nul' : undefined;
  return { text: violation === undefined ? text : '', rest: wire.slice(at + 3), ended: true, violation };
}

function cut(text: string, places: readonly number[]): readonly string[] {
  const bounds = [0, ...[...places].sort((a, b) => a - b), text.length];
  return bounds.slice(1).map((end, index) => text.slice(bounds[index], end));
}

/** The text of BDAT: nothing but line ends has a meaning, and the last line is completed. */
function decodeChunks(pieces: readonly string[], options: DataDecoderOptions = usual): Omit<Decoded, 'rest'> {
  const decoder = new DataDecoder({ ...options, isChunked: true });
  const decoded = pieces.map((piece) => decoder.write(Buffer.from(piece, 'latin1')).toString('latin1'));
  const text = [...decoded, decoder.end().toString('latin1')].join('');
  return { text, ended: decoder.ended, violation: decoder.violation };
}

/** Text of the bytes that matter; mostly valid line endings. */
const wireText = fc
  .array(
    fc.constantFrom('a', 'bc', '.', '..', '\r\n', '\r\n', '\r\n.', '\r', '\n', '\r\r\n', '\n.', '\r.', '.\r', ' '),
    {
      maxLength: 24,
    },
  )
  .map((parts) => `${parts.join('')}\r\n.\r\nQUIT\r\n`);

describe('the DATA decoder', () => {
  it('does what a naive decoder does, however the text is cut', () => {
    fc.assert(
      fc.property(wireText, fc.array(fc.nat(200), { maxLength: 12 }), (wire, places) => {
        const pieces = cut(
          wire,
          places.map((place) => place % (wire.length + 1)),
        );
        assert.deepEqual(decode(pieces), reference(wire));
      }),
      { numRuns: 3000 },
    );
  });

  it('takes the text of chunks by its line ends alone, however it is cut', () => {
    fc.assert(
      fc.property(wireText, fc.array(fc.nat(200), { maxLength: 12 }), fc.nat(8), (whole, places, left) => {
        const wire = whole.slice(0, whole.length - left);
        const text = wire.replaceAll(/\r\n|\r|\n/g, '\r\n').replace(/(?<!\r\n|^)$/, '\r\n');
        const pieces = cut(
          wire,
          places.map((place) => place % (wire.length + 1)),
        );
        assert.deepEqual(decodeChunks(pieces), { text, ended: true, violation: undefined });
      }),
      { numRuns: 3000 },
    );
  });

  it('refuses bare line endings of chunks when told to', () => {
    const strict = { ...usual, lineEndings: 'reject' as const };
    for (const bare of ['a\nb\r\n', 'a\rb\r\n', 'a\n', 'a\r']) {
      assert.equal(decodeChunks([bare], strict).violation, 'line-ending', JSON.stringify(bare));
    }
    assert.equal(decodeChunks(['a\r', '\n.\r\n', 'b'], strict).text, 'a\r\n.\r\nb\r\n');
  });

  it('has the same result for every one and two cuts', () => {
    const texts = fc.sample(wireText, { numRuns: 200, seed: 20_261_121 });
    for (const wire of texts) {
      const expected = reference(wire);
      for (let first = 0; first <= wire.length; first += 1) {
        assert.deepEqual(decode(cut(wire, [first])), expected);
        for (let second = first; second <= wire.length; second += 1) {
          assert.deepEqual(decode(cut(wire, [first, second])), expected);
        }
      }
    }
  });

  it('never lets a line that is a single dot come out unless the text held one that was stuffed or behind a bare ending', () => {
    const endings = ['\n.\n', '\n.\r\n', '\r\n.\n', '\r.\r\n', '\r.\r', '\r\n.\r', '\n.\r', '\n\r.\n\r'];
    for (const ending of endings) {
      const wire = `first${ending}MAIL FROM:<evil@example.org>\r\n.\r\n`;
      const result = decode([wire]);
      assert.equal(result.ended, true);
      assert.ok(result.text.includes('MAIL FROM:<evil@example.org>'), JSON.stringify(ending));
      assert.equal(result.rest, '');
      assert.doesNotMatch(result.text, /(?<!\r)\n|\r(?!\n)/);
    }
  });

  it('takes one dot away behind CRLF and none behind a bare LF', () => {
    assert.equal(decode(['.x\r\n..\r\n...\r\na\n..\r\n.\r\n']).text, 'x\r\n.\r\n..\r\na\r\n..\r\n');
  });

  it('ends an empty message at once', () => {
    assert.deepEqual(decode(['.\r\nQUIT\r\n']), { text: '', rest: 'QUIT\r\n', ended: true, violation: undefined });
  });

  it('refuses bare line endings when told to, and finds the end', () => {
    for (const bare of ['a\nb', 'a\rb', '.\rb', 'a\n', 'a\r']) {
      const result = decode([`${bare}\r\n.\r\n`], { ...usual, lineEndings: 'reject' });
      assert.equal(result.violation, 'line-ending', JSON.stringify(bare));
      assert.equal(result.ended, true);
    }
    assert.equal(decode(['a\r\n..\r\n\r\n.\r\n'], { ...usual, lineEndings: 'reject' }).violation, undefined);
  });

  it('gives out nothing behind a NUL', () => {
    const result = decode(['a\r\n', 'b\0c\r\nd\r\n', 'e\r\n.\r\nNOOP']);
    assert.deepEqual(result, { text: 'a\r\n', rest: 'NOOP', ended: true, violation: 'nul' });
  });

  it('counts the length of a line without its ending and without a stuffed dot, across chunks', () => {
    const short = { ...usual, lineBytes: 10 };
    assert.equal(decode(['0123456789\r\n.\r\n'], short).violation, undefined);
    assert.equal(decode(['.0123456789\r\n.\r\n'], short).violation, undefined);
    assert.equal(decode(['01234', '56789', '\r', '\n.\r\n'], short).violation, undefined);
    assert.equal(decode(['0123456789a\r\n.\r\n'], short).violation, 'long-line');
    assert.equal(decode(['01234', '56789', 'a', '\r', '\n.\r\n'], short).violation, 'long-line');
    assert.equal(decode(['0123456789abcdef'], short).violation, 'long-line');
    assert.equal(decode(['0123456789\n0123456789\r0123456789\r\n.\r\n'], short).violation, undefined);
  });

  it('calls a message too large by its decoded size', () => {
    const small = { ...usual, messageBytes: 8 };
    assert.equal(decode(['..abcde\r\n.\r\n'], small).violation, undefined);
    assert.equal(decode(['..abcdef\r\n.\r\n'], small).violation, 'too-large');
    assert.equal(decode(['a\nb\nc\n\r\n.\r\n'], small).violation, 'too-large');
  });

  it('hands clean text through without a copy', () => {
    const chunk = Buffer.from('clean\r\ntext\r\n.\r\n');
    const decoded = new DataDecoder(usual).write(chunk);
    assert.equal(decoded.buffer, chunk.buffer);
    assert.equal(decoded.toString(), 'clean\r\ntext\r\n');
  });
});
