import { decodeXtext } from '../../core/smtp/command.js';

/** ORCPT with its address decoded (RFC 3461 §4.2): `rfc822;ann@example.org`. */
export function decodeOriginal(originalRecipient: string): string {
  const semicolon = originalRecipient.indexOf(';');
  const decoded = decodeXtext(originalRecipient.slice(semicolon + 1));
  return decoded === undefined ? originalRecipient : `${originalRecipient.slice(0, semicolon)};${decoded}`;
}
