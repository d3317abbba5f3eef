const printableAscii = /^[ -~]*$/;
// eslint-disable-next-line no-control-regex
const ascii = /^[\0-\x7f]*$/;
const forbidden =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}\ufffd]|(?! )\p{Zs}/u;

/**
 * What no address may hold: control and format characters (bidi marks, zero widths), blanks other than the space of a
 * quoted local part, what fonts do not show, lone surrogates, noncharacters, and U+FFFD, which stands for bytes that were
 * not UTF-8 (overlong forms too) and would make different addresses equal.
 */
export function hasForbiddenCharacter(text: string): boolean {
  return !printableAscii.test(text) && forbidden.test(text);
}

/** Letters beyond ASCII stay as they are: `ı` is not `I`, and `ſ` is not `S`. */
export function asciiUpperCase(text: string): string {
  return isAscii(text) ? text.toUpperCase() : text.replaceAll(/[a-z]+/g, (letters) => letters.toUpperCase());
}

export function isAscii(text: string): boolean {
  return ascii.test(text);
}

/** A character as `utf-8-addr-xtext` embeds it (RFC 6533 §3), so that it goes where only ASCII does: `\x{EB}`. */
export const embedded = (character: string): string =>
  `\\x{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(2, '0')}}`;
