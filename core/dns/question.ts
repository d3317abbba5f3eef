import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';
import { normalAddress } from '../net/ip-address.js';

/** RFC 1035 §2.3.4, in octets of text without the last dot. */
const longestName = 253;
/** Not only host names are asked for: `_dmarc`, and what the macros of SPF make (RFC 7208 §7). */
const label = /^[!-[\]-~]{1,63}$/;

/** The name as the DNS is asked for it: ASCII, lower case, no dot at its end. Undefined for what can be no name. */
export function questionName(text: string): string | undefined {
  const bare = text.endsWith('.') ? text.slice(0, -1) : text;
  const ascii = /[^\0-~]/.test(bare) && !/[\0-\x20\x7f]/.test(bare) ? domainToASCII(bare) : bare.toLowerCase();
  const isName = ascii.length <= longestName && ascii.split('.').every((one) => label.test(one));
  return isName ? ascii : undefined;
}

/** The address that is asked for: written as such, or as its name below `in-addr.arpa` or `ip6.arpa` (RFC 3596 §2.5). */
export function questionAddress(text: string): string | undefined {
  if (isIP(text) !== 0) return normalAddress(text);
  const [, reversed = '', zone] = /^([0-9a-f.]+)\.(in-addr|ip6)\.arpa\.?$/i.exec(text) ?? [];
  const parts = reversed.split('.').toReversed();
  const address = zone?.toLowerCase() === 'ip6' ? (parts.join('').match(/.{4}/g) ?? []).join(':') : parts.join('.');
  const isWhole = parts.length === 4 || (parts.length === 32 && parts.every((part) => part.length === 1));
  return isWhole && isIP(address) !== 0 ? normalAddress(address) : undefined;
}
