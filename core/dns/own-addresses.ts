import { networkInterfaces } from 'node:os';
import { isLoopbackAddress, normalAddress } from '../net/ip-address.js';

/** Addresses of this machine's interfaces, without loopback. */
export function ownAddresses(): readonly string[] {
  return Object.values(networkInterfaces())
    .flatMap((interfaces) => interfaces ?? [])
    .map(({ address }) => normalAddress(address))
    .filter((address) => !isLoopbackAddress(address));
}
