import { problem } from '../problem.js';
import { isAscii } from './character.js';

/** A local part in its decoded form (no quoting); case as received. */
export type LocalPart = string & { readonly brand: 'LocalPart' };

/** RFC 5321 §4.5.3.1.1, in octets of the decoded form. */
const maxLocalPartBytes = 64;
/** RFC 5322 §3.2.3 `dot-atom-text`, widened by RFC 6531 §3.3. */
const dotAtom =
  /^[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\u{10ffff}-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\u{10ffff}-]+)*$/u;
/** RFC 5321 §4.1.2 `Quoted-string`: any printable character or space, `"` and `\` behind a backslash. */
const quotedString = /^"(?:[ !#-[\]-~\u0080-\u{10ffff}]|\\[ -~])*"$/u;

/** Dot-atom or quoted string. Control and invisible characters are refused before. Throws `invalid`. */
export function parseLocalPart(text: string): LocalPart {
  const local = decode(text);
  if (Buffer.byteLength(local) > maxLocalPartBytes) {
    throw problem('invalid', `The local part is longer than ${maxLocalPartBytes} octets.`);
  }
  // Two spellings that look the same would be two mailboxes.
  if (!isAscii(local) && local.normalize('NFC') !== local)
    throw problem('invalid', 'The local part is not in Unicode form NFC.');
  return local as LocalPart;
}

/** As it is where that is a dot-atom, else as a quoted string. */
export function quoteLocalPart(local: LocalPart): string {
  return dotAtom.test(local) ? local : `"${local.replace(/["\\]/g, '\\$&')}"`;
}

function decode(text: string): string {
  if (quotedString.test(text)) return text.slice(1, -1).replace(/\\(.)/gu, '$1');
  if (dotAtom.test(text)) return text;
  throw problem('invalid', 'The local part must be dot-separated words, or in double quotes.');
}
