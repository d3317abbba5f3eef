import { isIPv4, isIPv6, SocketAddress } from 'node:net';
import { domainToASCII, domainToUnicode } from 'node:url';
import { problem, type Problem } from '../problem.js';
import { hasForbiddenCharacter, isAscii } from './character.js';

/** A mailbox as RFC 5321 §4.1.2 knows it. `address` is its canonical spelling, ready for an envelope. */
export interface Address {
  readonly local: LocalPart;
  /** ASCII lower case A-labels, or an address literal in brackets. */
  readonly domain: Domain;
  readonly address: string;
  /** True when the address needs SMTPUTF8 (RFC 6531). */
  readonly international: boolean;
}

/** Maximum length of a written address: a quoted local part of 252 octets, all escaped, and a domain of 255. */
const maxLength = 1024;

/**
 * The one parser of mailbox addresses: `local@domain` without brackets, display name or comment (RFC 5321 §4.1.2, RFC
 * 6531 §3.3). The domain becomes lower case A-labels; the local part stays, quoted only where needed. `%` and `!` in a
 * local part have no special meaning. Throws `invalid`. Linear.
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

/** The address of a parsed local part and domain. */
export function makeAddress(local: LocalPart, domain: Domain): Address {
  return Object.freeze({
    local,
    domain,
    address: `${quoteLocalPart(local)}@${domain}`,
    international: !isAscii(local),
  });
}

/** Index of the `@` after the local part; a quoted one may contain others. */
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

/** The parts of the argument of MAIL and RCPT after `FROM:` and `TO:`. */
export interface PathArgument {
  /** With brackets, as `parsePath` takes it. */
  readonly path: string;
  /** ESMTP parameters, trimmed. */
  readonly rest: string;
  /** False when the path needs SMTPUTF8, even if only for its domain (RFC 6531 §3.4). */
  readonly ascii: boolean;
}

/** Bounds the source route where no command line does. */
const maxPathLength = 4096;

/**
 * Finds the end of the path in the argument of MAIL or RCPT: a quoted local part may contain `>` and blanks. Accepts
 * blanks before the path, which common clients send. Throws `invalid`.
 *
 * @param lenient also accepts an address without brackets, up to the first blank
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
 * Parses a reverse-path or forward-path with its brackets (RFC 5321 §4.1.2). A source route is checked and ignored
 * (§3.6.1, appendix C). Throws `invalid`.
 *
 * @param bareDomain the domain of `<postmaster>`, which RCPT may name without one (§4.5.1); absent: refused
 * @returns null for `<>`, which only MAIL accepts
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

/** Index after the closing bracket, or -1. */
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

/** A decoded (unquoted) local part; case and Unicode form as received (RFC 5321 §2.3.11). */
export type LocalPart = string & { readonly brand: 'LocalPart' };

/**
 * In octets when decoded: the path limit of 256 (RFC 5321 §4.5.3.1.3) without brackets, `@` and a domain of one letter.
 * The 64 octets of §4.5.3.1.1 are a minimum that servers must accept; VERP and SRS use more.
 */
const maxLocalPartBytes = 252;
/** RFC 5322 §3.2.3 `dot-atom-text`, widened by RFC 6531 §3.3. */
const dotAtom =
  /^[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\u{10ffff}-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\u{10ffff}-]+)*$/u;
/** RFC 5321 §4.1.2 `Quoted-string`: any printable character or space, `"` and `\` behind a backslash. */
const quotedString = /^"(?:[ !#-[\]-~\u0080-\u{10ffff}]|\\[ -~])*"$/u;

/** Decodes a dot-atom or quoted string. The caller has refused control and invisible characters. Throws `invalid`. */
function parseLocalPart(text: string): LocalPart {
  const local = decode(text);
  if (Buffer.byteLength(local) > maxLocalPartBytes) {
    throw problem('invalid', `The local part is longer than ${maxLocalPartBytes} octets.`);
  }
  return local as LocalPart;
}

/** Unchanged if a dot-atom, else as a quoted string. */
export function quoteLocalPart(local: LocalPart): string {
  return dotAtom.test(local) ? local : `"${local.replace(/["\\]/g, '\\$&')}"`;
}

function decode(text: string): string {
  if (quotedString.test(text)) return text.slice(1, -1).replace(/\\(.)/gu, '$1');
  if (dotAtom.test(text)) return text;
  throw problem('invalid', 'The local part must be dot-separated words, or in double quotes.');
}

/** A domain name in lower case A-labels without a trailing dot, or, in an address, an address literal in brackets. */
export type Domain = string & { readonly brand: 'Domain' };

/** RFC 5321 §4.5.3.1.2, in octets. */
const maxDomainLength = 255;
/** RFC 1035 §2.3.4, RFC 5890 §2.3.1: letters, digits and inner hyphens, at most 63. */
const label = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/** Labels that software reads as part of an IPv4 address: no top level domain is numeric (RFC 3696 §2). */
const numericLabel = /^(?:[0-9]+|0x[0-9a-f]*)$/;
/** Characters allowed before normalisation. All others would be mapped or decoded. */
const plainAscii = /^[A-Za-z0-9.\u0080-\u{10ffff}-]+$/u;

/**
 * Parses a domain name (RFC 5321 §4.1.2 `Domain`) and turns U-labels into A-labels (RFC 5890). Throws `invalid` for a
 * trailing dot, an empty or overlong label, an underscore, a bare IP address, and characters that would only be mapped
 * to others.
 */
export function parseDomain(text: string, subject = 'The domain'): Domain {
  const name = asciiName(text);
  if (name === undefined || !isDomainName(name)) {
    throw problem('invalid', `${subject} is not a valid domain name, such as example.com.`);
  }
  return name;
}

/** Parses an IPv4 or IPv6 address literal in brackets (RFC 5321 §4.1.3) into canonical form. Throws `invalid`. */
export function parseAddressLiteral(text: string): Domain {
  const inner = text.endsWith(']') ? text.slice(1, -1) : '';
  if (isIPv4(inner)) return `[${inner}]` as Domain;
  const ipv6 = /^ipv6:([0-9a-f:.]+)$/i.exec(inner)?.[1] ?? '';
  if (isIPv6(ipv6)) return `[IPv6:${new SocketAddress({ address: ipv6, family: 'ipv6' }).address}]` as Domain;
  throw problem('invalid', 'An address literal is [192.0.2.1] or [IPv6:2001:db8::1].');
}

/** Lower case with U-labels as A-labels; letters, digits and hyphens are not checked yet. */
function asciiName(text: string): string | undefined {
  if (text.length > maxDomainLength || hasForbiddenCharacter(text) || !plainAscii.test(text)) return undefined;
  if (isAscii(text) && !/xn--/i.test(text)) return text.toLowerCase();
  const labels = text.normalize('NFC').toLowerCase().split('.').map(asciiLabel);
  return labels.includes(undefined) ? undefined : labels.join('.');
}

/** Undefined for a label that does not survive a round trip: a character in it was mapped, so it is no U-label. */
function asciiLabel(one: string): string | undefined {
  if (!isAscii(one)) {
    const name = domainToASCII(one);
    return one === domainToUnicode(name) ? name : undefined;
  }
  return one.startsWith('xn--') && !isALabel(one) ? undefined : one;
}

/** For an A-label that encodes nothing, newer releases of Node return it unchanged, older ones an empty string. */
function isALabel(one: string): boolean {
  const decoded = domainToUnicode(one);
  return !isAscii(decoded) && domainToASCII(decoded) === one;
}

function isDomainName(name: string): name is Domain {
  if (name.length > maxDomainLength) return false;
  const labels = name.split('.');
  return labels.every((one) => label.test(one)) && !numericLabel.test(labels.at(-1) ?? '');
}
