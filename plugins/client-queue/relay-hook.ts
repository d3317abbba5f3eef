import type { Hook } from '../../core/smtp/hook.js';
import type { NetworkSet } from '../../core/smtp/networks.js';
import type { SmtpSession } from '../../core/smtp/transaction.js';
import { next, route } from '../../core/smtp/verdict.js';
import type { DestinationRules } from './destination-key.js';

export const relayTarget = 'relay';

export interface RelayHookInput {
  /** Canonical domains whose mail stays here. */
  readonly localDomains: () => ReadonlySet<string>;
  readonly relayNetworks: () => NetworkSet;
  readonly rules: () => DestinationRules;
}

/**
 * Mail for other domains goes to the relay queue when whoever sends it may relay: a signed-in user, a client in one of the relay
 * networks, this server itself. Of everybody else it has no opinion, and then nobody takes it: never an open relay.
 */
export function relayHook({ localDomains, relayNetworks, rules }: RelayHookInput): Hook<'rcptTo'> {
  return ({ transaction, address }) => {
    if (localDomains().has(address.domain) || !mayRelay(transaction.session, relayNetworks())) return next();
    return route({ target: relayTarget, destination: rules().keyOf(address) });
  };
}

function mayRelay({ user, internal, remote }: SmtpSession, networks: NetworkSet): boolean {
  return user !== undefined || internal === true || networks.has(remote.address);
}
