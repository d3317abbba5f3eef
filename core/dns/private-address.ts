import { isIPv6 } from 'node:net';
import { bitsOf, normalAddress } from '../net/ip-address.js';
import { parseNetworks, type NetworkSet } from '../net/networks.js';

interface SpecialNetworks {
  /** RFC 6890 and its successors: networks that are not reachable over the Internet. */
  readonly special: NetworkSet;
  /**
   * Networks whose addresses contain an IPv4 address, which begins at bit `bits`: NAT64 (RFC 6052), 6to4 (RFC 3056),
   * IPv4-compatible (RFC 4291).
   */
  readonly embedding: readonly { readonly networks: NetworkSet; readonly bits: number }[];
}

let known: SpecialNetworks | undefined;

/** Built on first use, which keeps it out of the start. */
function specialNetworks(): SpecialNetworks {
  known ??= {
    special: parseNetworks(
      `0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16 198.18.0.0/15
       224.0.0.0/4 240.0.0.0/4 ::/127 fc00::/7 fe80::/10 fec0::/10 ff00::/8 64:ff9b:1::/48 100::/64 2001::/32`.split(
        /\s+/,
      ),
    ),
    embedding: [
      { networks: parseNetworks(['64:ff9b::/96']), bits: 96 },
      { networks: parseNetworks(['2002::/16']), bits: 16 },
      { networks: parseNetworks(['::/96']), bits: 96 },
    ],
  };
  return known;
}

/** True for private, loopback, link-local, multicast and reserved addresses in any notation. */
export function isPrivateAddress(ip: string): boolean {
  const { special, embedding } = specialNetworks();
  const address = normalAddress(ip);
  if (special.has(address)) return true;
  if (!isIPv6(address)) return false;
  const embedded = embedding.find(({ networks }) => networks.has(address));
  return embedded !== undefined && special.has(embeddedAddress(address, embedded.bits));
}

function embeddedAddress(ipv6: string, bits: number): string {
  const number = bitsOf(ipv6).slice(bits, bits + 32);
  return [0, 8, 16, 24].map((at) => Number.parseInt(number.slice(at, at + 8), 2)).join('.');
}
