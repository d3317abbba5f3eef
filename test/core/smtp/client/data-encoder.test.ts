import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DataEncoder, hasEightBit } from '../../../../core/smtp/client/content.js';
import { DataDecoder } from '../../../../core/smtp/server/dot-decoder.js';

function encoded(pieces: readonly Buffer[]): Buffer {
  const encoder = new DataEncoder();
  // What comes out may be what went in: copied before the next piece.
  const parts = pieces.map((piece) => Buffer.from(encoder.encode(piece)));
  return Buffer.concat([...parts, encoder.end()]);
}

const nasty = fc
  .array(fc.constantFrom('\r', '\n', '\r\n', '.', 'a', 'é', '\0', '\r\n.', '.\r\n'), { maxLength: 40 })
  .map((pieces) => Buffer.from(pieces.join('')));

function cut(bytes: Buffer, at: readonly number[]): readonly Buffer[] {
  const places = [0, ...at.map((place) => place % (bytes.length + 1)), bytes.length].sort((one, other) => one - other);
  return places.slice(1).map((end, index) => bytes.subarray(places[index], end));
}

test('what a receiver decodes is the text with CRLF line ends, however it was cut', () => {
  fc.assert(
    fc.property(nasty, fc.array(fc.nat(100), { maxLength: 5 }), (bytes, at) => {
      const wire = encoded(cut(bytes, at));
      assert.ok(wire.equals(encoded([bytes])));
      const decoder = new DataDecoder({ lineEndings: 'reject', lineBytes: 10_000, messageBytes: 10_000 });
      const text = decoder.write(wire).toString('latin1');
      assert.equal(decoder.ended, true);
      assert.equal(decoder.rest.length, 0);
      const expected = bytes.toString('latin1').replace(/\r\n|\r|\n/g, '\r\n');
      const ended = expected === '' || expected.endsWith('\r\n') ? expected : `${expected}\r\n`;
      if (decoder.violation !== 'nul') assert.equal(text, ended);
      assert.ok(decoder.violation === undefined || decoder.violation === 'nul');
    }),
    { numRuns: 500 },
  );
});

test('no text can end the message early or smuggle another line end', () => {
  fc.assert(
    fc.property(nasty, (bytes) => {
      const wire = encoded([bytes]).toString('latin1');
      assert.equal(`\r\n${wire}`.indexOf('\r\n.\r\n'), wire.length - 3);
      assert.ok(!/\r(?!\n)|(?<!\r)\n/.test(wire));
    }),
    { numRuns: 500 },
  );
});

test('text that needs no change is passed on as it is', () => {
  const text = Buffer.from('Subject: x\r\n\r\nbody\r\n');
  const encoder = new DataEncoder();
  assert.equal(encoder.encode(text), text);
  assert.equal(encoder.taken, text.length);
  assert.equal(encoder.eightBit, false);
  encoder.encode(Buffer.from('é'));
  assert.equal(encoder.eightBit, true);
  assert.equal(hasEightBit(text), false);
});
