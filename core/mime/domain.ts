import { isIPv4, isIPv6, SocketAddress } from 'node:net';
import { domainToASCII, domainToUnicode } from 'node:url';
import { problem } from '../problem.js';
import { hasForbiddenCharacter, isAscii } from './character.js';

/** A domain name in lower case A-labels without a dot at its end, or, in an address, an address literal in brackets. */
export type Domain = string & { readonly brand: 'Domain' };

/** RFC 5321 §4.5.3.1.2, in octets. */
const maxDomainLength = 255;
/** RFC 1035 §2.3.4, RFC 5890 §2.3.1: letters, digits and inner hyphens, at most 63. */
const label = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/** What programs take for an IPv4 address: no top level domain has only digits (RFC 3696 §2). */
const numericLabel = /^(?:[0-9]+|0x[0-9a-f]*)$/;
/** The ASCII that may stand in a domain before it is normalised. Everything else would be mapped or decoded. */
const plainAscii = /^[A-Za-z0-9.\u0080-\u{10ffff}-]+$/u;

/**
 * A domain name (RFC 5321 §4.1.2 `Domain`), U-labels made A-labels (RFC 5890). A dot at the end, an empty or overlong label,
 * an underscore, a bare IP address and characters that would only be mapped to others are refused with `invalid`.
 */
export function parseDomain(text: string): Domain {
  const name = asciiName(text);
  if (name === undefined || !isDomainName(name)) {
    throw problem('invalid', 'The domain is not a valid domain name, such as example.com.');
  }
  return name;
}

/** IPv4 or IPv6 address literal in brackets (RFC 5321 §4.1.3); comes out in canonical form. Throws `invalid`. */
export function parseAddressLiteral(text: string): Domain {
  const inner = text.endsWith(']') ? text.slice(1, -1) : '';
  if (isIPv4(inner)) return `[${inner}]` as Domain;
  const ipv6 = /^ipv6:([0-9a-f:.]+)$/i.exec(inner)?.[1] ?? '';
  if (isIPv6(ipv6)) return `[IPv6:${new SocketAddress({ address: ipv6, family: 'ipv6' }).address}]` as Domain;
  throw problem('invalid', 'An address literal is [192.0.2.1] or [IPv6:2001:db8::1].');
}

/** The name in lower case with its U-labels made A-labels; not yet checked for letters, digits and hyphens. */
function asciiName(text: string): string | undefined {
  if (text.length > maxDomainLength || hasForbiddenCharacter(text) || !plainAscii.test(text)) return undefined;
  if (isAscii(text) && !/xn--/i.test(text)) return text.toLowerCase();
  const labels = text.normalize('NFC').toLowerCase().split('.').map(asciiLabel);
  return labels.includes(undefined) ? undefined : labels.join('.');
}

/** Undefined for a label that does not come back: something in it was mapped to something else, so it is no U-label. */
function asciiLabel(one: string): string | undefined {
  if (!isAscii(one)) {
    const name = domainToASCII(one);
    return one === domainToUnicode(name) ? name : undefined;
  }
  return one.startsWith('xn--') && !isALabel(one) ? undefined : one;
}

/** Newer releases of Node leave an A-label that stands for nothing as it is; older ones make it empty. */
function isALabel(one: string): boolean {
  const decoded = domainToUnicode(one);
  return !isAscii(decoded) && domainToASCII(decoded) === one;
}

function isDomainName(name: string): name is Domain {
  if (name.length > maxDomainLength) return false;
  const labels = name.split('.');
  return labels.every((one) => label.test(one)) && !numericLabel.test(labels.at(-1) ?? '');
}
