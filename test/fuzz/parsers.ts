import assert from 'node:assert/strict';
import fc from 'fast-check';
import { parseAddressList } from '../../core/mime/address-list.js';
import { parseAddress, parseDomain, parsePath } from '../../core/mime/address.js';
import { parseParameters } from '../../core/mime/content-type.js';
import { scanHeader } from '../../core/mime/header.js';
import { snippetOf, summarise } from '../../plugins/store/mime/summary.js';
import { readStructure } from '../../core/mime/structure.js';
import { decodeWords } from '../../core/mime/encoded-words.js';
import { isProblem } from '../../core/problem.js';
import type { FuzzTarget } from './target.js';

const addressPieces = [
  'a',
  'B',
  '0',
  '@',
  '.',
  '..',
  '-',
  '_',
  '+',
  '%',
  '!',
  '"',
  '\\',
  '\\"',
  '<',
  '>',
  ':',
  ',',
  ';',
  '(',
  ')',
  ' ',
  '[',
  ']',
  'IPv6:',
  '::1',
  '127.0.0.1',
  'xn--',
  'xn--bcher-kva',
  'ü',
  'ß',
  'e\u0301',
  '\u202e',
  '\u200d',
  '\0',
  '\r\n',
  '/',
  '..',
  'localhost',
  'example.org',
  'x'.repeat(64),
  `${'y'.repeat(63)}.`,
  '\ud800',
  '１',
  '。',
  'İ',
  'ı',
  'K',
];
const addressText = fc.array(fc.constantFrom(...addressPieces), { maxLength: 12 }).map((pieces) => pieces.join(''));

/** The value, or undefined where the parser has refused in the one way in which it may. */
function parsed<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    assert.ok(isProblem(error), String(error));
    return undefined;
  }
}

export const addressTarget: FuzzTarget = {
  name: 'address',
  quickRuns: 2000,
  property: fc.property(addressText, addressText, (local, domain) => {
    for (const text of [local, `${local}@${domain}`, `"${local}"@${domain}`]) {
      const address = parsed(() => parseAddress(text));
      if (address !== undefined) {
        assert.equal(parseAddress(address.address).address, address.address, 'the canonical form is a fixed point');
        // eslint-disable-next-line no-control-regex
        assert.doesNotMatch(address.address, /[\x00-\x1f\x7f\u202e]/);
        assert.doesNotMatch(address.domain, /[/\\]|\.\./);
        assert.equal(parsePath(`<${address.address}>`)?.address, address.address);
      }
      parsed(() => parsePath(`<${text}>`));
    }
    const name = parsed(() => parseDomain(domain));
    if (name !== undefined) assert.equal(parseDomain(name), name);
  }),
};

const headerPieces = [
  'Subject',
  'From',
  'To',
  'Date',
  'Content-Type',
  'Content-Disposition',
  '__proto__',
  ':',
  ' : ',
  ': ',
  '\r\n',
  '\n',
  '\r',
  '\r\n ',
  '\r\n\t',
  '\r\n\r\n',
  '\0',
  '\xff',
  '\xc3\xa4',
  '=?utf-8?q?',
  '=?utf-8?B?',
  '?=',
  '=?',
  '==',
  '=FF',
  '=0D=0A',
  '_',
  '?',
  'multipart/mixed',
  'message/rfc822',
  'text/html',
  'text/plain',
  '; boundary=',
  'b',
  '"b"',
  '; charset=utf-7',
  "; name*0*=utf-8''%41%",
  '; name*1=x',
  '; filename=',
  '"',
  '\\',
  '<',
  '>',
  '@',
  ',',
  ';',
  '(',
  ')',
  'a@b.example',
  '--b',
  '--b--',
  'Content-Transfer-Encoding: base64',
  'Content-Transfer-Encoding: quoted-printable',
  'QUJD',
  '=\r\n',
];
/** Text of which a message could be made, and almost never is. */
export const headerText = fc
  .array(fc.constantFrom(...headerPieces), { maxLength: 60 })
  .map((pieces) => pieces.join(''));

export const headerTarget: FuzzTarget = {
  name: 'header',
  quickRuns: 800,
  property: fc.property(headerText, (text) => {
    const bytes = Buffer.from(text, 'latin1');
    const header = scanHeader(bytes);
    for (const field of header.fields) {
      const value = header.value(field);
      assert.doesNotMatch(`${field.name}${value}`, /[\r\n]/);
      decodeWords(value);
      parseAddressList(value);
      parseParameters(value);
    }
    const structure = readStructure(bytes);
    for (const part of structure.parts) {
      assert.ok(part.headerOffset <= part.bodyOffset && part.bodyOffset <= part.end && part.end <= bytes.length);
    }
    const { subject } = summarise(bytes, bytes.length);
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(subject, /[\x00-\x08\x0a-\x1f\x7f]/);
    snippetOf(bytes, structure);
  }),
};
