import { isIP } from 'node:net';
import type { HopFinder, NextHop } from '../../../core/dns/next-hop.js';
import { normalAddress } from '../../../core/net/ip-address.js';
import { problem, type Problem } from '../../../core/problem.js';
import { parseNetworks, type NetworkSet } from '../../../core/net/networks.js';

export interface Target {
  readonly host: string;
  readonly ports: readonly number[];
}

interface Allowed {
  readonly names: ReadonlySet<string>;
  readonly networks: NetworkSet;
}

/**
 * Hosts and ports that a caller may name. A name is resolved once, and the address that was looked at is the one that is
 * dialled: a name that later points elsewhere changes nothing.
 */
export class TargetList {
  readonly #byPort = new Map<number, Allowed>();
  readonly #finder: HopFinder;

  constructor(targets: readonly Target[], finder: HopFinder) {
    this.#finder = finder;
    for (const port of new Set(targets.flatMap(({ ports }) => ports))) {
      const hosts = targets.filter(({ ports }) => ports.includes(port)).map(({ host }) => host);
      this.#byPort.set(port, {
        names: new Set(hosts.filter((host) => !isAddress(host)).map(canonical)),
        networks: parseNetworks(hosts.filter(isAddress)),
      });
    }
  }

  /**
   * Servers that may be dialled, in the order of the hosts.
   * @throws Problem `forbidden` when one of the hosts is not allowed, `unavailable` when none has an address
   */
  async find(hosts: readonly string[], port: number, signal: AbortSignal): Promise<readonly NextHop[]> {
    const found: NextHop[] = [];
    for (const host of hosts) found.push(...(await this.#one(host, port, signal)));
    if (found.length === 0) throw problem('unavailable', `None of ${hosts.join(', ')} has an address.`);
    return found;
  }

  async #one(host: string, port: number, signal: AbortSignal): Promise<readonly NextHop[]> {
    const allowed = this.#byPort.get(port);
    const name = canonical(host);
    if (allowed === undefined) throw forbidden(host, port);
    if (isIP(name) !== 0 && !allowed.networks.has(name)) throw forbidden(host, port);
    // What looks like a number but is no address as people write them would be dialled as one by the system.
    if (isIP(name) === 0 && /^(0x[0-9a-f]*|[0-9]+)$/.test(name.split('.').at(-1) ?? '')) throw forbidden(host, port);
    const search = await this.#finder.forHosts([name], { signal, allowPrivate: true });
    const hops = search.outcome === 'found' ? search.hops : [];
    if (allowed.names.has(name)) return hops;
    const inside = hops.filter(({ address }) => allowed.networks.has(address));
    if (inside.length < hops.length || hops.length === 0) throw forbidden(host, port);
    return inside;
  }
}

/** The same sentence whether a name exists or not: the list is no way to ask the DNS. */
function forbidden(host: string, port: number): Problem {
  const shown = host.length > 100 ? `${host.slice(0, 100)}…` : host;
  return problem(
    'forbidden',
    `${shown} port ${port} is not among the targets that plugins.client-queue.targets allows.`,
  );
}

const isAddress = (host: string): boolean => isIP(host.split('/')[0] ?? '') !== 0;

function canonical(host: string): string {
  const bare = host.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  return isIP(bare) === 0 ? bare.replace(/\.$/, '') : normalAddress(bare);
}
