import type { Clock } from '../../../core/clock.js';
import type { Directory, MailUser } from '../../../core/contracts/directory.js';
import { type Address, parseAddress } from '../../../core/mime/address.js';
import { isProblem } from '../../../core/problem.js';
import type { Hook, StageInput } from '../../../core/pipeline/hook.js';
import type { Recipient } from '../../../core/pipeline/transaction.js';
import type { LiveTransactions } from '../live-transactions.js';
import { rcptVerdict } from '../rcpt-verdict.js';
import type { UpstreamCounts } from '../upstream-counts.js';
import type { UpstreamShelf } from '../upstream-shelf.js';
import { defer, type Hop, next, reject, route, type Verdict } from '../../../core/pipeline/verdict.js';
import type { LmtpRoute, RouteTable } from './route-table.js';

export const lmtpTarget = 'lmtp';

export interface LmtpHookInput {
  readonly table: () => RouteTable;
  readonly directory: Pick<Directory, 'resolve'> | undefined;
  readonly shelf: UpstreamShelf;
  readonly live: LiveTransactions;
  readonly counts: UpstreamCounts;
  readonly clock: Clock;
}

type Asked = StageInput['rcptTo'];

/** Recipients of a route go to its server; those that it or the directory does not know are refused. */
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
  { shelf, live, counts, clock }: LmtpHookInput,
  { name, settings }: LmtpRoute,
  { transaction, address: asked, dsn }: Asked,
  address: Address,
): Verdict | Promise<Verdict> {
  const hop = hopTo({ name, settings }, asked, address);
  if (transaction.session.dryRun === true) return route(hop);
  const upstream = shelf.get(name);
  if (upstream === undefined) return defer(451, '4.4.4', 'This route has no servers');
  return rcptVerdict(live.at(transaction, name, upstream).rcpt(address, dsn), hop, {
    clock,
    answered: (answer, ms) => counts.answered(name, answer, ms),
  });
}

function hopTo({ name }: LmtpRoute, asked: Address, mailbox: Address): Hop {
  const isSame = asked.address === mailbox.address;
  return { target: lmtpTarget, destination: name, ...(!isSame && { data: { mailbox: mailbox.address } }) };
}

/** The recipient as the LMTP server knows him: by his own name where an alias was asked for. */
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
