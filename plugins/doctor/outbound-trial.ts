import type { Clock } from '../../core/clock.js';
import { advice, fine, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import { MailRoutes } from '../../core/dns/mail-routes.js';
import type { NextHop } from '../../core/dns/next-hop.js';
import type { Resolver } from '../../core/dns/resolver.js';
import { parseDomain } from '../../core/mime/address.js';
import { isClientFailure } from '../../core/smtp/client/failure.js';
import { openSession } from '../../core/smtp/client/opening.js';

const stepMs = 8000;
/** Servers of the domain to connect to, concurrently. */
const maxServers = 3;

export interface OutboundInput {
  /** The domain to connect to. */
  readonly domain: string;
  readonly hostname: string;
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly port?: number;
}

/** Connects to the servers of a domain and sends EHLO and QUIT. @throws Problem `invalid` for an invalid domain */
export async function outboundFindings(input: OutboundInput): Promise<readonly Finding[]> {
  const { resolver, port = 25 } = input;
  const domain = parseDomain(input.domain);
  const routes = new MailRoutes({ resolver, ownNames: [], ownAddresses: () => [] });
  const search = await routes.forDomain(domain, { allowPrivate: true });
  if (search.outcome === 'failed') {
    return [
      trouble(`There is no way to ${domain}: ${search.text}.`, 'Name a domain that takes mail, or look at the DNS.'),
    ];
  }
  const dialled = await Promise.all(search.hops.slice(0, maxServers).map((hop) => dial(hop, port, input)));
  const reached = dialled.filter(({ state }) => state !== 'problem');
  // One successful connection shows that outgoing connections are possible.
  return reached.length > 0 ? reached : dialled;
}

async function dial({ host, address }: NextHop, port: number, { hostname, clock }: OutboundInput): Promise<Finding> {
  const place = `${host} (${address}, port ${port})`;
  const deadlines = {
    connectMs: stepMs,
    greetingMs: stepMs,
    helloMs: stepMs,
    tlsMs: stepMs,
    quitMs: 1000,
    attemptMs: stepMs,
  };
  try {
    const session = await openSession(
      { address, host, port, protocol: 'smtp', tls: { mode: 'opportunistic' }, helloName: hostname },
      { deadlines, clock },
    );
    const tls = session.tls === undefined ? 'in clear' : `by ${session.tls.protocol}`;
    await session.quit();
    return fine(`${place} takes the call, ${tls}.`);
  } catch (error) {
    if (!isClientFailure(error)) throw error;
    const { kind, reply, text, code } = error;
    if (reply !== undefined) {
      return advice(
        `${place} answers, but not with a yes: ${code} ${text}.`,
        'The way out is open; this server does not want us.',
      );
    }
    const todo =
      kind === 'connect' || kind === 'timeout'
        ? 'Your provider or a firewall may close port 25 outwards: ask for it, or send by a route (plugins.client-queue.routes).'
        : 'Look at what stands between: something may answer in its place.';
    return trouble(`${place} cannot be reached: ${text}.`, todo);
  }
}
