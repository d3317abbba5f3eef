import type { NoRoute } from '../../../core/dns/next-hop.js';
import type { Destination as Server } from '../../../core/smtp/client/destination.js';
import type { Hop } from '../../../core/pipeline/verdict.js';
import type { DestinationControls, RecordedControl } from './destination-controls.js';
import { readDestination } from './destination-key.js';
import type { NextHops } from './next-hops.js';

export interface RelayExplanationInput {
  readonly hops: Pick<NextHops, 'find'>;
  readonly controls: Pick<DestinationControls, 'get'>;
}

/** What the relay would do with a recipient, a sentence each. */
export function explainRelay({ hops, controls }: RelayExplanationInput) {
  return async ({ destination }: Hop): Promise<readonly string[]> => {
    const found = await hops.find(destination);
    const keys = found.outcome === 'found' ? [destination, found.site] : [destination];
    const pauses = keys.flatMap((key) => pauseOf(controls.get(key)));
    return [`It goes into the queue, to be sent ${wayOf(destination)}.`, ...pauses, ...serversOf(found)];
  };
}

function pauseOf(control: RecordedControl | undefined): readonly string[] {
  if (control === undefined || control.suspendedUntil === null) return [];
  const { destination, reason } = control;
  return [`${destination} is suspended: the mail waits until that ends${reason === null ? '' : ` (${reason})`}.`];
}

function wayOf(destination: string): string {
  const read = readDestination(destination);
  if (read.kind === 'route') return `by the route ${read.route}`;
  if (read.kind === 'target') return `by the target ${read.target} of this server`;
  if (read.kind === 'servers') return `to ${read.servers.hosts.join(', ')}`;
  return read.kind === 'literal' ? `to the address ${read.domain}` : `to the MX of ${read.domain}`;
}

function serversOf(found: Awaited<ReturnType<NextHops['find']>>): readonly string[] {
  if (found.outcome === 'failed') return [failureOf(found)];
  const demand = found.mustVerify === true ? ['Its MTA-STS policy demands TLS with a valid certificate.'] : [];
  return [...demand, ...found.servers.map(sentenceOf)];
}

function failureOf({ code, status, text, permanent }: NoRoute): string {
  const then = permanent ? 'it would be returned to its sender' : 'it would be tried again later';
  return `There is no way now, ${then}: ${code} ${status} ${text}.`;
}

const tlsWords = {
  never: 'without TLS',
  opportunistic: 'with TLS when it is offered',
  require: 'with TLS or not at all',
  implicit: 'with TLS from the first byte',
} as const;

function sentenceOf({ host, address, port, protocol, tls, auth }: Server, index: number): string {
  const place = index === 0 ? 'First' : 'Then';
  const check =
    tls.mode === 'never' || tls.mode === 'opportunistic' || tls.verify === false ? '' : ', its certificate checked';
  const signedIn = auth === undefined ? '' : `, signed in as ${auth.username}`;
  return `${place} ${host ?? address} [${address}] port ${port} by ${protocol.toUpperCase()}, ${tlsWords[tls.mode]}${check}${signedIn}.`;
}
