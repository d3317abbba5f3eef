import type { Clock } from '../../../core/clock.js';
import type { Directory, MailUser } from '../../../core/contracts/directory.js';
import { type Address, parseAddress, parseDomain } from '../../../core/mime/address.js';
import type { Hook, StageInput } from '../../../core/pipeline/hook.js';
import type { Recipient } from '../../../core/pipeline/transaction.js';
import { defer, type Hop, next, reject, route, type Verdict } from '../../../core/pipeline/verdict.js';
import { isProblem } from '../../../core/problem.js';
import type { LiveTransactions } from '../live-transaction.js';
import type { UpstreamCounts } from '../upstream-counts.js';
import { rcptVerdict, type UpstreamRegistry } from '../upstream-target.js';
import { type LmtpSettings, routeName, type RouteSettings } from './options.js';

export const lmtpTarget = 'lmtp';

interface LmtpHookInput {
  readonly table: () => LmtpRoutes;
  readonly directory: Pick<Directory, 'resolve'> | undefined;
  readonly upstreams: UpstreamRegistry;
  readonly live: LiveTransactions;
  readonly counts: UpstreamCounts;
  readonly clock: Clock;
}

type Asked = StageInput['rcptTo'];

/** Routes recipients to LMTP servers, and refuses those that the server or the directory does not know. */
export function lmtpHook(input: LmtpHookInput): Hook<'rcptTo'> {
  return (asked) => {
    const table = input.table();
    const named = table.find(asked.address);
    const mayBeAlias = table.namesUsers && named === undefined;
    if (named === undefined && !mayBeAlias) return next();
    if (named?.settings.verify === 'rcpt' || input.directory === undefined) {
      return named === undefined ? next() : askServer(input, named, asked, asked.address);
    }
    const user = input.directory.resolve(asked.address);
    return user instanceof Promise
      ? user.then((found) => forUser(input, asked, named, found))
      : forUser(input, asked, named, user);
  };
}

function forUser(
  input: LmtpHookInput,
  asked: Asked,
  named: LmtpRoute | undefined,
  user: MailUser | undefined,
): Verdict | Promise<Verdict> {
  const found = (user && input.table().ofUser(user.address)) ?? named;
  if (found === undefined) return next();
  if (user?.disabled === true) return reject(550, '5.2.1', 'This mailbox is disabled');
  if (found.settings.verify === 'rcpt') return askServer(input, found, asked, user?.address ?? asked.address);
  if (user === undefined) return reject(550, '5.1.1', 'No such user here');
  input.counts.answered(found.name, 'accepted', 0);
  return route(hopTo(found, asked.address, user.address));
}

function askServer(
  { upstreams, live, counts, clock }: LmtpHookInput,
  { name, settings }: LmtpRoute,
  { transaction, address: asked, dsn }: Asked,
  address: Address,
): Verdict | Promise<Verdict> {
  const hop = hopTo({ name, settings }, asked, address);
  if (transaction.session.dryRun === true) return route(hop);
  const upstream = upstreams.get(name);
  if (upstream === undefined) return defer(451, '4.4.4', 'This route has no servers');
  return rcptVerdict(live.at(transaction, name, upstream).rcpt(address, dsn), hop, clock, (answer, ms) =>
    counts.answered(name, answer, ms),
  );
}

function hopTo({ name }: LmtpRoute, asked: Address, mailbox: Address): Hop {
  const isSame = asked.address === mailbox.address;
  return { target: lmtpTarget, destination: name, ...(!isSame && { data: { mailbox: mailbox.address } }) };
}

/** The recipient's name at the LMTP server: the user name where an alias was given. */
export function asMailbox(recipient: Recipient): Recipient {
  const { mailbox } = (recipient.hop?.data ?? {}) as { readonly mailbox?: unknown };
  if (typeof mailbox !== 'string') return recipient;
  try {
    return { ...recipient, address: parseAddress(mailbox) };
  } catch (error) {
    if (!isProblem(error)) throw error;
    return recipient;
  }
}

export interface LmtpRoute {
  readonly name: string;
  readonly settings: RouteSettings;
}

/** The route of a recipient: that of the user, else that of the domain. */
export class LmtpRoutes {
  readonly routes: readonly LmtpRoute[];
  readonly #byUser = new Map<string, LmtpRoute>();
  readonly #byDomain = new Map<string, LmtpRoute>();

  constructor({ routes }: LmtpSettings) {
    this.routes = routes.map((settings, index) => ({ name: routeName(settings, index), settings }));
    for (const route of this.routes) {
      for (const user of route.settings.users) keep(this.#byUser, userKey(parseAddress(user)), route);
      for (const domain of route.settings.domains) keep(this.#byDomain, parseDomain(domain), route);
    }
  }

  find(address: Address): LmtpRoute | undefined {
    return this.ofUser(address) ?? this.#byDomain.get(address.domain);
  }

  /** The route that names this user. */
  ofUser(address: Address): LmtpRoute | undefined {
    return this.#byUser.get(userKey(address));
  }

  /** True when a route names users, since an alias may belong to one of them. */
  get namesUsers(): boolean {
    return this.#byUser.size > 0;
  }
}

const userKey = ({ address }: Address): string => address.toLowerCase();

/** The first match counts. */
function keep(map: Map<string, LmtpRoute>, key: string, route: LmtpRoute): void {
  if (!map.has(key)) map.set(key, route);
}
