import type { LocalDelivery } from '../../../core/contracts/local-delivery.js';
import type { Address } from '../../../core/mime/address.js';
import type { Hook } from '../../../core/pipeline/hook.js';
import type { NetworkSet } from '../../../core/net/networks.js';
import type { SmtpSession, Transaction } from '../../../core/pipeline/transaction.js';
import { next, route, type Verdict } from '../../../core/pipeline/verdict.js';
import { targetKey, type DestinationRules } from './destination-key.js';

export const relayTarget = 'relay';

export interface RelayHookInput {
  /** Canonical domains whose mail stays here. */
  readonly localDomains: () => ReadonlySet<string>;
  readonly relayNetworks: () => NetworkSet;
  readonly rules: () => DestinationRules;
  readonly local: Pick<LocalDelivery, 'route'>;
}

/**
 * Mail for other domains goes to the relay queue when whoever sends it may relay: a signed-in user, a client in one of the relay
 * networks, this server itself. Of everybody else it has no opinion, and then nobody takes it: never an open relay.
 */
export function relayHook({ localDomains, relayNetworks, rules, local }: RelayHookInput): Hook<'rcptTo'> {
  return ({ transaction, address, dsn }) => {
    if (localDomains().has(address.domain)) {
      const wantsSuccess = dsn?.notify?.includes('success') === true && !transaction.notes.has(askingNote);
      return wantsSuccess ? throughQueue(local, transaction, address) : next();
    }
    if (!mayRelay(transaction.session, relayNetworks())) return next();
    return route({ target: relayTarget, destination: rules().keyOf(address) });
  };
}

/** In the notes of a transaction: this hook itself asks where a recipient goes. */
const askingNote = 'client-queue.asking';

/**
 * A sender who wants to hear that the mail has come gets his notice from the queue, which does not forget it in a crash: the mail
 * goes through it to where it would have gone.
 */
async function throughQueue(
  local: RelayHookInput['local'],
  transaction: Transaction,
  address: Address,
): Promise<Verdict> {
  const hop = await local.route({ ...transaction, notes: new Map([[askingNote, true]]) }, address);
  // A hop with data of its own may hang on this very session.
  if (hop === undefined || hop.data !== undefined) return next();
  return route({ target: relayTarget, destination: targetKey(hop.target), data: { hop } });
}

function mayRelay({ user, internal, remote }: SmtpSession, networks: NetworkSet): boolean {
  return user !== undefined || internal === true || networks.has(remote.address);
}
