import fc from 'fast-check';

/** Pieces of message text in which every meaning of a line end and of a dot occurs. */
const piece = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('a', 'bc', '.', '..', '\r\n', '\r\n', '\r\n.', '\r\n..', ' ', '\t') },
  {
    weight: 3,
    arbitrary: fc.constantFrom('\r', '\n', '\r\r\n', '\n.', '\r.', '.\r', '\n\r', '\n.\n', '\r.\r\n', '\n.\r\n'),
  },
  { weight: 1, arbitrary: fc.constantFrom('MAIL FROM:<evil@sender.example>', 'QUIT', 'DATA', 'RSET') },
  {
    weight: 1,
    arbitrary: fc.string({ unit: fc.integer({ min: 1, max: 255 }).map((n) => String.fromCharCode(n)), maxLength: 8 }),
  },
);

/** Message text as it goes over the wire, one character an octet, with the end of the message behind it. */
export const wireText: fc.Arbitrary<string> = fc
  .record({
    pieces: fc.array(piece, { maxLength: 60 }),
    nul: fc.nat(20).map((n) => (n === 0 ? '\0' : '')),
  })
  .map(({ pieces, nul }) => `Subject: fuzz\r\n\r\n${pieces.join('')}${nul}\r\n.\r\n`);

/** Where a text is cut into segments, as parts of 1000 of its length. */
export const cuts: fc.Arbitrary<readonly number[]> = fc.array(fc.nat(1000), { maxLength: 12 });

export function cut(text: string, places: readonly number[]): readonly string[] {
  const bounds = places.map((place) => Math.floor((place * text.length) / 1000));
  const sorted = [0, ...bounds.toSorted((a, b) => a - b), text.length];
  return sorted.slice(1).map((end, index) => text.slice(sorted[index], end));
}

/** What a server makes of the text, said naively: up to the first CRLF.CRLF, dots unstuffed, bare CR and LF made CRLF. */
export function decoded(wire: string): { readonly text: string; readonly rest: string } {
  const at = `\r\n${wire}`.indexOf('\r\n.\r\n');
  const text = wire
    .slice(0, at)
    .split('\r\n')
    .map((line) => (line.startsWith('.') ? line.slice(1) : line).replace(/[\r\n]/g, '\r\n'))
    .join('\r\n');
  return { text, rest: wire.slice(at + 3) };
}
