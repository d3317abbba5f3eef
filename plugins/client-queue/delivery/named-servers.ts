import type { HopFinder, HopSearch, NoRoute } from '../../../core/dns/next-hop.js';
import type { TlsMode } from '../../../core/smtp/client/destination.js';
import { isProblem, problem } from '../../../core/problem.js';
import { type Target, TargetList } from '../case/target-list.js';

/** Servers that a caller has named for a message, in place of a route or the MX. */
export interface NamedServers {
  /** Tried in this order. */
  readonly hosts: readonly string[];
  readonly port: number;
  readonly protocol: 'smtp' | 'lmtp';
  readonly tls: TlsMode;
}

const modes: readonly TlsMode[] = ['never', 'opportunistic', 'require', 'implicit'];
const written =
  /^mx:(smtp|lmtp):(never|opportunistic|require|implicit):(\d{1,5}):([a-z0-9._:[\]-]+(?:,[a-z0-9._:[\]-]+)*)$/;
/** Looking a name up is given up after that time. */
const patienceMs = 60_000;

/** The key of the destination. @throws Problem `invalid` for hosts that no key can hold */
export function namedServersKey({ hosts, port, protocol, tls }: NamedServers): string {
  const key = `mx:${protocol}:${tls}:${port}:${hosts.map((host) => host.trim().toLowerCase()).join(',')}`;
  if (readNamedServers(key) === undefined) throw problem('invalid', 'mx: has something that is no name of a host.');
  return key;
}

/** Undefined when it is none. */
export function readNamedServers(key: string): NamedServers | undefined {
  const [, protocol, tls, port, hosts] = written.exec(key) ?? [];
  if (hosts === undefined || Number(port) < 1 || Number(port) > 65_535) return undefined;
  return {
    hosts: hosts.split(','),
    port: Number(port),
    protocol: protocol === 'lmtp' ? 'lmtp' : 'smtp',
    tls: modes.find((mode) => mode === tls) ?? 'opportunistic',
  };
}

/** Their addresses, as far as they may be dialled now: the list may have changed since they were named. Never rejects. */
export async function findNamedServers(
  { hosts, port }: NamedServers,
  targets: readonly Target[],
  finder: HopFinder,
): Promise<HopSearch> {
  try {
    const hops = await new TargetList(targets, finder).find(hosts, port, AbortSignal.timeout(patienceMs));
    return { outcome: 'found', site: hosts.join(','), hops };
  } catch (error) {
    return isProblem(error) && error.problem === 'forbidden'
      ? noWay('private', '4.7.1', error.message)
      : noWay('no-address', '4.4.4', `None of ${hosts.join(', ')} has an address`);
  }
}

const noWay = (reason: NoRoute['reason'], status: string, text: string): NoRoute => ({
  outcome: 'failed',
  reason,
  code: 451,
  status,
  text,
  permanent: false,
});
