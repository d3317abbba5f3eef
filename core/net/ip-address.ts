import { isIP, isIPv4, isIPv6 } from 'node:net';

/**
 * Canonical address of a peer: IPv4-mapped IPv6 becomes IPv4 (RFC 4291 §2.5.5.2), IPv6 is lower case and compressed
 * (RFC 5952) without a zone. Other text stays unchanged.
 */
export function normalAddress(ip: string): string {
  if (!ip.includes(':')) return ip;
  const bare = ip.split('%', 1)[0] ?? '';
  if (!isIPv6(bare)) return ip;
  const groups = groupsOf(bare);
  const [high = 0, low = 0] = groups.slice(6);
  const isMapped = groups.slice(0, 6).join(':') === '0:0:0:0:0:65535';
  return isMapped ? [high >> 8, high & 255, low >> 8, low & 255].join('.') : compressed(bare);
}

/** Key of per-client limits: an IPv4 address, or the /64 of an IPv6 address, which belongs to one client. */
export function clientKey(ip: string): string {
  const address = normalAddress(ip);
  if (!address.includes(':') || !isIPv6(address)) return address;
  const network = groupsOf(address).slice(0, 4);
  return `${network.map((group) => group.toString(16)).join(':')}::/64`;
}

/** Networks that may belong to one site, from wide to narrow, and finally its `clientKey`. */
export function clientNetworks(ip: string): readonly string[] {
  const lengths = [
    { ipv4: 16, ipv6: 32 },
    { ipv4: 24, ipv6: 48 },
    { ipv4: 32, ipv6: 56 },
  ];
  return [...lengths.map((length) => networkOf(ip, length)), clientKey(ip)];
}

export function isLoopbackAddress(ip: string): boolean {
  const address = normalAddress(ip);
  return address === '::1' || (address.startsWith('127.') && isIPv4(address));
}

/** The 32 or 128 bits of an address as `0` and `1`. */
export function bitsOf(address: string): string {
  const [parts, width] = isIPv4(address) ? [address.split('.').map(Number), 8] : [groupsOf(address), 16];
  return parts.map((part) => part.toString(2).padStart(width, '0')).join('');
}

/**
 * The network of a peer by its prefix length in bits, written as `192.0.2.0/24` or `2001:db8:1:2::/64`. Other text
 * stays unchanged.
 */
export function networkOf(ip: string, { ipv4, ipv6 }: { readonly ipv4: number; readonly ipv6: number }): string {
  const address = normalAddress(ip);
  if (isIP(address) === 0) return ip;
  const [length, width] = isIPv4(address) ? [ipv4, 8] : [ipv6, 16];
  const bits = bitsOf(address).slice(0, length).padEnd(bitsOf(address).length, '0');
  const parts = pieces(bits, width).map((piece) => Number.parseInt(piece, 2));
  const network = isIPv4(address) ? parts.join('.') : compressed(parts.map((part) => part.toString(16)).join(':'));
  return `${network}/${length}`;
}

/** Reversed for DNS zones: `1.2.0.192`, or the nibbles of an IPv6 address from the last (RFC 5782 §2.1, §2.4). */
export function reversedAddress(ip: string): string {
  const address = normalAddress(ip);
  if (isIPv4(address)) return address.split('.').toReversed().join('.');
  const nibbles = pieces(bitsOf(address), 4).map((piece) => Number.parseInt(piece, 2).toString(16));
  return nibbles.toReversed().join('.');
}

function pieces(bits: string, width: number): readonly string[] {
  return Array.from({ length: bits.length / width }, (_, at) => bits.slice(at * width, (at + 1) * width));
}

/** The form of the URL parser: RFC 5952, a dotted tail as two groups. */
function compressed(ipv6: string): string {
  return new URL(`http://[${ipv6}]/`).hostname.slice(1, -1);
}

/** The eight numbers of an IPv6 address. */
function groupsOf(ipv6: string): readonly number[] {
  const [front = [], back = []] = compressed(ipv6)
    .split('::')
    .map((side) => side.split(':').filter((group) => group !== ''));
  const zeros = Array<string>(8 - front.length - back.length).fill('0');
  return [...front, ...zeros, ...back].map((group) => Number.parseInt(group, 16));
}
