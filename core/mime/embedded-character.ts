/** A character as `utf-8-addr-xtext` embeds it (RFC 6533 §3), so that it goes where only ASCII does: `\x{EB}`. */
export const embedded = (character: string): string =>
  `\\x{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(2, '0')}}`;
