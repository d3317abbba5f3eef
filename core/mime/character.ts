const printableAscii = /^[ -~]*$/;
// eslint-disable-next-line no-control-regex
const ascii = /^[\0-\x7f]*$/;
const forbidden =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}\ufffd]|(?! )\p{Zs}/u;

/**
 * Characters that no address may contain: control and format characters (bidi marks, zero widths), blanks except the
 * space in a quoted local part, invisible characters, lone surrogates, noncharacters, and U+FFFD, which replaces bytes
 * that are not UTF-8 and would make different addresses equal.
 */
export function hasForbiddenCharacter(text: string): boolean {
  return !printableAscii.test(text) && forbidden.test(text);
}

/** Changes ASCII letters only: `ı` does not become `I`, nor `ſ` `S`. */
export function asciiUpperCase(text: string): string {
  return isAscii(text) ? text.toUpperCase() : text.replaceAll(/[a-z]+/g, (letters) => letters.toUpperCase());
}

export function isAscii(text: string): boolean {
  return ascii.test(text);
}

/** A character as `utf-8-addr-xtext` (RFC 6533 §3), for ASCII-only places: `\x{EB}`. */
export const embedded = (character: string): string =>
  `\\x{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(2, '0')}}`;
