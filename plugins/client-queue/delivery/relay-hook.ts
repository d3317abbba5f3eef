import type { LocalDelivery } from '../../../core/contracts/local-delivery.js';
import type { QueueOutcome } from '../../../core/contracts/relay-queue-store.js';
import type { NoRoute } from '../../../core/dns/next-hop.js';
import { type Address, parseAddress } from '../../../core/mime/address.js';
import { type Dane, usableTlsa } from '../../../core/net/tlsa.js';
import { pluralize } from '../../../core/text/format.js';
import type { NetworkSet } from '../../../core/net/networks.js';
import type { Hook } from '../../../core/pipeline/hook.js';
import type { Outcome } from '../../../core/pipeline/events.js';
import type { SmtpSession, Transaction } from '../../../core/pipeline/transaction.js';
import { defer, type Hop, next, route, type Verdict } from '../../../core/pipeline/verdict.js';
import type { RemoteServer as Server } from '../../../core/smtp/client/remote-server.js';
import type { DestinationControls, RecordedControl } from './destination-controls.js';
import { type DestinationRules, readDestination, targetKey } from './destination.js';
import type { NextHops } from './next-hops.js';

export const relayTarget = 'relay';

interface RelayHookInput {
  /** Canonical local domains. */
  readonly localDomains: () => ReadonlySet<string>;
  readonly relayNetworks: () => NetworkSet;
  readonly rules: () => DestinationRules;
  readonly local: Pick<LocalDelivery, 'route'>;
  /** Why the queue takes nothing now; undefined when it does. */
  readonly refusal: () => string | undefined;
}

/**
 * Mail for other domains goes to the relay queue when its sender may relay: an authenticated user, a client in a relay
 * network, or this server. Otherwise the hook has no opinion, and the recipient is refused: never an open relay.
 */
export function relayHook({ localDomains, relayNetworks, rules, local, refusal }: RelayHookInput): Hook<'rcptTo'> {
  return ({ transaction, address, dsn }) => {
    if (localDomains().has(address.domain)) {
      const wantsSuccess = dsn?.notify?.includes('success') === true && !transaction.notes.has(askingNote);
      return wantsSuccess ? throughQueue(local, transaction, address) : next();
    }
    if (!mayRelay(transaction.session, relayNetworks())) return next();
    const why = refusal();
    if (why !== undefined) return defer(451, '4.3.0', why);
    return route({ target: relayTarget, destination: rules().keyOf(address) });
  };
}

/** In the notes of a transaction: this hook itself routes a recipient. */
const askingNote = 'client-queue.asking';

/**
 * A requested success DSN comes from the queue, which survives a crash: the mail goes through it to its original hop.
 */
async function throughQueue(
  local: RelayHookInput['local'],
  transaction: Transaction,
  address: Address,
): Promise<Verdict> {
  const hop = await local.route({ ...transaction, notes: new Map([[askingNote, true]]) }, address);
  // A hop with data may depend on this session.
  if (hop === undefined || hop.data !== undefined) return next();
  return route({ target: relayTarget, destination: targetKey(hop.target), data: { hop } });
}

function mayRelay({ user, internal, remote }: SmtpSession, networks: NetworkSet): boolean {
  return user !== undefined || internal === true || networks.has(remote.address);
}

/** What the relay would do with a recipient, one sentence each. */
export function explainRelay(hops: Pick<NextHops, 'find'>, controls: Pick<DestinationControls, 'get'>) {
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
  const skipped = (found.skipped ?? []).map(
    (host) => `${host} is left out: its TLSA records cannot be looked up (DANE).`,
  );
  return [...demand, ...found.servers.map(sentenceOf), ...skipped];
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
  const isChecked = tls.mode !== 'never' && tls.mode !== 'opportunistic' && tls.verify !== false;
  const check = `${isChecked ? ', its certificate checked' : ''}${tls.dane === undefined ? '' : `, ${daneWords(tls.dane)}`}`;
  const signedIn = auth === undefined ? '' : `, signed in as ${auth.username}`;
  return `${place} ${host ?? address} [${address}] port ${port} by ${protocol.toUpperCase()}, ${tlsWords[tls.mode]}${check}${signedIn}.`;
}

/** What DANE demands of a server (RFC 7672). */
function daneWords(dane: Dane): string {
  const usable = usableTlsa(dane).length;
  if (usable > 0) return `its certificate checked against ${pluralize(usable, 'TLSA record')} of ${dane.base} (DANE)`;
  return `though none of the TLSA records of ${dane.base} can be used to check its certificate (DANE)`;
}

/** An outcome of the queue as watchers receive it. */
export function outcomeEvent({ uid, sender, state, reply, hold, ...outcome }: QueueOutcome): Outcome {
  const { address, destination, attempts, nextAttempt, at } = outcome;
  const { envelopeId } = outcome.accepted();
  const read = readDestination(destination);
  return {
    id: uid,
    reversePath: sender === null ? null : parseAddress(sender),
    recipient: parseAddress(address),
    status: state,
    reply: reply && { code: reply.code, status: reply.status, text: reply.text, host: reply.host },
    ...(hold !== null && { reason: hold }),
    attempts,
    nextAttemptAt: nextAttempt,
    at,
    target: read.kind === 'target' ? read.target : relayTarget,
    ...(envelopeId !== undefined && { envelopeId }),
  };
}
