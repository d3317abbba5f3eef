import { problem } from '../problem.js';

/** A local part in its decoded form (no quoting); case and Unicode form as received (RFC 5321 §2.3.11). */
export type LocalPart = string & { readonly brand: 'LocalPart' };

/**
 * In octets of the decoded form: the path limit of 256 (RFC 5321 §4.5.3.1.3) without brackets, `@` and a domain of one
 * letter. The 64 octets of §4.5.3.1.1 are what a server must take at least; VERP and SRS make longer ones.
 */
const maxLocalPartBytes = 252;
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
