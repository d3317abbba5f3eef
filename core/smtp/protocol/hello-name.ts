const name = /^[A-Za-z0-9_](?:[A-Za-z0-9_.:-]*[A-Za-z0-9_.])?$/;
const literal = /^\[[A-Za-z0-9.:-]+\]$/;

/**
 * What may follow HELO, EHLO and LHLO (RFC 5321 §4.1.1.1): one name or address literal of at most 255 characters. Bare
 * addresses, underscores and single words are common and taken; nothing that could act in a header, a log or a page is.
 */
export function isHelloName(text: string): boolean {
  return text.length <= 255 && (name.test(text) || literal.test(text));
}
