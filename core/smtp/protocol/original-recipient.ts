import { hasForbiddenCharacter } from '../../mime/character.js';
import { decodeXtext } from './command.js';

/** ORCPT with its address decoded (RFC 3461 §4.2): `rfc822;ann@example.org`. */
export function decodeOriginal(originalRecipient: string): string {
  const semicolon = originalRecipient.indexOf(';');
  const decoded = decodeXtext(originalRecipient.slice(semicolon + 1));
  return decoded === undefined ? originalRecipient : `${originalRecipient.slice(0, semicolon)};${decoded}`;
}

/** The same for a person or a report: the address of a type `utf-8` is decoded from its own form too (RFC 6533 §3). */
export function originalAddress(originalRecipient: string): string {
  const decoded = decodeOriginal(originalRecipient);
  return /^utf-8;/i.test(decoded) ? decoded.replaceAll(/\\x\{([0-9A-F]{2,6})\}/g, character) : decoded;
}

function character(escaped: string, hex: string): string {
  const code = Number.parseInt(hex, 16);
  const text = code > 0x10ffff ? '' : String.fromCodePoint(code);
  return text === '' || hasForbiddenCharacter(text) ? escaped : text;
}
