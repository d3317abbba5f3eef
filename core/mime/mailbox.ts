import { problem, type Problem } from '../problem.js';
import { hasForbiddenCharacter, isAscii } from './character.js';
import { parseAddressLiteral, parseDomain, type Domain } from './domain.js';
import { parseLocalPart, quoteLocalPart, type LocalPart } from './local-part.js';

/** A mailbox as RFC 5321 §4.1.2 knows it. `address` is its canonical spelling, ready for an envelope. */
export interface Address {
  readonly local: LocalPart;
  /** ASCII lower case A-labels, or an address literal in brackets. */
  readonly domain: Domain;
  readonly address: string;
  /** True when the address needs SMTPUTF8 (RFC 6531). */
  readonly international: boolean;
}

/** Longest spelling that is looked at: a quoted local part of 252 octets, all escaped, and a domain of 255. */
const maxLength = 1024;

/**
 * The one parser of mailbox addresses: `local@domain`, without brackets, name or comment (RFC 5321 §4.1.2, RFC 6531 §3.3).
 * The domain comes out in lower case A-labels, the local part as it was, quoted only where that is needed. `%` and `!` in a
 * local part are characters like others. Throws `invalid`. Linear.
 */
export function parseAddress(text: string): Address {
  if (text.length > maxLength) throw invalid('The address is too long.');
  if (hasForbiddenCharacter(text)) {
    throw invalid('The address has a control, invisible or malformed character.');
  }
  const at = endOfLocalPart(text);
  if (at <= 0 || text[at] !== '@') throw invalid('An address is a local part, "@" and a domain.');
  const domain = text.slice(at + 1);
  return makeAddress(
    parseLocalPart(text.slice(0, at)),
    domain.startsWith('[') ? parseAddressLiteral(domain) : parseDomain(domain),
  );
}

/** The address of two parts that have been parsed. */
export function makeAddress(local: LocalPart, domain: Domain): Address {
  return Object.freeze({
    local,
    domain,
    address: `${quoteLocalPart(local)}@${domain}`,
    international: !isAscii(local),
  });
}

/** Index of the `@` behind the local part; a quoted one may hold others. */
function endOfLocalPart(text: string): number {
  if (!text.startsWith('"')) return text.indexOf('@');
  for (let at = 1; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1;
    else if (text[at] === '"') return at + 1;
  }
  return -1;
}

function invalid(detail: string): Problem {
  return problem('invalid', detail);
}
