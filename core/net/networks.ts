import { BlockList, isIPv4, isIPv6 } from 'node:net';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import { bitsOf, normalAddress } from './ip-address.js';
import { problem } from '../problem.js';

/** Results are cached, since clients reconnect, and a scan of the list costs as much as reading a command. */
const maxKnown = 1000;

/** A set of IP networks. */
export interface NetworkSet {
  /** IPv4-mapped IPv6 addresses are looked up as IPv4; invalid addresses are in no network. */
  has(ip: string): boolean;
}

/**
 * Networks such as `192.0.2.0/24`, `2001:db8::/32` or a single address. An invalid entry throws `invalid` with its
 * position, counted from 1. So does an entry with host bits: `10.1.2.3/8` usually means one host, not all of 10.
 */
export function parseNetworks(list: readonly string[]): NetworkSet {
  const networks = new BlockList();
  list.forEach((entry, index) => {
    const reason = add(networks, entry.trim());
    if (reason !== undefined) {
      throw problem('invalid', `Network ${index + 1}, ${JSON.stringify(entry.slice(0, 64))}: ${reason}.`);
    }
  });
  const known = new LRUCache<string, boolean>({ max: maxKnown });
  return {
    has(ip) {
      const answered = known.get(ip);
      if (answered !== undefined) return answered;
      const answer = holds(networks, ip);
      known.set(ip, answer);
      return answer;
    },
  };
}

/** Schema for options: a list that `parseNetworks` accepts. */
export const NetworkList = z
  .array(z.string().min(1))
  .default([])
  .superRefine((list, context) => {
    try {
      parseNetworks(list);
    } catch (error) {
      context.addIssue(error instanceof Error ? error.message : 'must be networks');
    }
  });

const relayNetworks = new WeakMap<readonly string[], NetworkSet>();

/** True when a client may relay without signing in. */
export function isRelayClient(settings: { readonly relayNetworks: readonly string[] }, ip: string): boolean {
  let networks = relayNetworks.get(settings.relayNetworks);
  if (networks === undefined) {
    networks = parseNetworks(settings.relayNetworks);
    relayNetworks.set(settings.relayNetworks, networks);
  }
  return networks.has(ip);
}

function holds(networks: BlockList, ip: string): boolean {
  const address = normalAddress(ip);
  if (isIPv4(address)) return networks.check(address, 'ipv4');
  return isIPv6(address) && networks.check(address, 'ipv6');
}

/** Adds the network, or returns what is wrong with it. */
function add(networks: BlockList, entry: string): string | undefined {
  const [address = '', prefix, ...more] = entry.split('/');
  const family = isIPv4(address) ? 'ipv4' : 'ipv6';
  const bits = family === 'ipv4' ? 32 : 128;
  if ((family === 'ipv6' && !isIPv6(address)) || address.includes('%') || more.length > 0) {
    return 'write an address or a network, such as 192.0.2.0/24 or 2001:db8::/32';
  }
  if (normalAddress(address) !== address && isIPv4(normalAddress(address))) {
    return `write it as IPv4: ${normalAddress(address)}`;
  }
  if (prefix === undefined) {
    networks.addAddress(address, family);
    return undefined;
  }
  const length = /^\d{1,3}$/.test(prefix) ? Number(prefix) : -1;
  if (length < 0 || length > bits) return `the number behind "/" goes from 0 to ${bits}`;
  if (bitsOf(address).slice(length).includes('1')) {
    return `the address has bits behind its first ${length}; write the network's first address, or the address alone`;
  }
  networks.addSubnet(address, length, family);
  return undefined;
}
