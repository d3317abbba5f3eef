import { isIPv6 } from 'node:net';
import { normalAddress } from '../../net/ip-address.js';
import type { Capabilities } from './capabilities.js';
import type { ClientIdentity } from './destination.js';
import { encodeXtext } from './xtext.js';

/** The XCLIENT line with what of the identity the server takes; undefined when that is nothing. */
export function identityLine(identity: ClientIdentity, { xclient }: Capabilities): string | undefined {
  const attributes = Object.entries(identity)
    .filter(([name]) => xclient.includes(name))
    .map(([name, value]) => `${name}=${encodeXtext(name === 'ADDR' ? address(String(value)) : String(value))}`);
  return attributes.length === 0 ? undefined : `XCLIENT ${attributes.join(' ')}`;
}

function address(ip: string): string {
  const normal = normalAddress(ip);
  return isIPv6(normal) ? `IPV6:${normal}` : normal;
}
