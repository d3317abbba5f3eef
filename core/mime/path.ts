import { problem, type Problem } from '../problem.js';
import { makeAddress, parseAddress, type Address } from './mailbox.js';
import { isAscii } from './character.js';
import { parseDomain, type Domain } from './domain.js';
import type { LocalPart } from './local-part.js';

/** The argument of MAIL and RCPT behind `FROM:` and `TO:`, split. */
export interface PathArgument {
  /** With its brackets; for `parsePath`. */
  readonly path: string;
  /** Esmtp parameters, without blanks at the ends. */
  readonly rest: string;
  /** False when the path as written needs SMTPUTF8, be it for its domain alone (RFC 6531 §3.4). */
  readonly ascii: boolean;
}

/** Source routes are limited by the command line; this bounds those who call with text from elsewhere. */
const maxPathLength = 4096;

/**
 * Finds the end of the path in the argument of MAIL or RCPT: a quoted local part may hold `>` and blanks. Blanks in front of
 * the path are taken, as common clients send them. Throws `invalid`.
 *
 * @param lenient whether an address without brackets, up to the first blank, is a path too
 */
export function parsePathArgument(argument: string, lenient = false): PathArgument {
  const written = argument.trimStart();
  const text = lenient ? written.replace(/^[^<\s]\S*/, '<$&>') : written;
  const end = endOfPath(text);
  if (end < 0) throw invalid('A path is an address in angle brackets.');
  const path = text.slice(0, end);
  const rest = text.slice(end);
  if (rest !== '' && !rest.startsWith(' ')) throw invalid('A blank must stand between the path and what follows it.');
  return { path, rest: rest.trim(), ascii: isAscii(path) };
}

/**
 * Reverse-path or forward-path (RFC 5321 §4.1.2) with its brackets. A source route is read and ignored (§3.6.1, appendix C).
 * Throws `invalid`.
 *
 * @param bareDomain the domain of `<postmaster>`, which RCPT may name without one (§4.5.1); if absent it is refused
 * @returns null for `<>`, which only MAIL takes
 */
export function parsePath(path: string, bareDomain?: Domain): Address | null {
  if (path.length > maxPathLength || !path.startsWith('<') || endOfPath(path) !== path.length) {
    throw invalid('A path is an address in angle brackets.');
  }
  const inner = path.slice(1, -1);
  if (inner === '') return null;
  if (bareDomain !== undefined && inner.toLowerCase() === 'postmaster')
    return makeAddress(inner as LocalPart, bareDomain);
  return parseAddress(inner.startsWith('@') ? withoutSourceRoute(inner) : inner);
}

/** `@one,@two:user@three`: the domains must be domains; they have no effect. */
function withoutSourceRoute(text: string): string {
  const colon = text.indexOf(':');
  if (colon < 0) throw invalid('A source route ends with a colon.');
  for (const hop of text.slice(0, colon).split(',')) {
    if (!hop.startsWith('@')) throw invalid('A source route is a list of "@" and domain.');
    parseDomain(hop.slice(1));
  }
  return text.slice(colon + 1);
}

/** Index behind the closing bracket, or -1. */
function endOfPath(text: string): number {
  if (!text.startsWith('<')) return -1;
  let quoted = false;
  for (let at = 1; at < text.length; at += 1) {
    const character = text[at];
    if (quoted && character === '\\') at += 1;
    else if (character === '"') quoted = !quoted;
    else if (character === '>' && !quoted) return at + 1;
  }
  return -1;
}

function invalid(detail: string): Problem {
  return problem('invalid', detail);
}
