import { targets } from '../../core/contracts/targets.js';
import type { Clock } from '../../core/clock.js';
import type { MailUser } from '../../core/contracts/directory.js';
import { uniqueId } from '../../core/disk/id.js';
import { maxAddresses, parseAddressList } from '../../core/mime/address-list.js';
import { type Address, parseAddress } from '../../core/mime/address.js';
import { mailDate } from '../../core/mime/header.js';
import type { Hook } from '../../core/pipeline/hook.js';
import type { ReceivedMessage, SmtpSession, Transaction } from '../../core/pipeline/transaction.js';
import { accept, change, type Change, defer, next, reject, route, type Verdict } from '../../core/pipeline/verdict.js';
import { isProblem } from '../../core/problem.js';
import { secondsText } from '../../core/text/format.js';
import { type LocalDestination, looksRouted, type UserDirectory } from './directory.js';
import type { UsersSettings } from './options.js';
import type { CountSignIn, SignedInSessions, SignIns } from './sign-ins.js';
import { partsOf } from './user.js';

/** Checks AUTH. A wrong password is passed on: the default verdict is 535 5.7.8. */
export function signInHook(
  signIns: SignIns,
  sessions: Pick<SignedInSessions, 'begin'>,
  count: CountSignIn,
): Hook<'auth'> {
  return async ({ session, username, password }) => {
    try {
      const { address } = session.remote;
      const result = await signIns.attempt({ username, password, address, exempt: session.exempt });
      count('smtp', result.outcome);
      if (result.outcome === 'refused') return next();
      if (result.outcome === 'accepted') {
        sessions.begin(session, result.user.username);
        return accept({ username: result.user.username });
      }
      return defer(454, '4.7.0', `Too many failed sign-ins, try again in ${secondsText(result.retryAfter)}`);
    } catch (error) {
      if (!isProblem(error)) throw error;
      count('smtp', 'unavailable');
      // RFC 4954 §6: a temporary failure of the server.
      return defer(454, '4.7.0', 'Temporary authentication failure');
    }
  };
}

/**
 * Decides about every recipient: local users get a mailbox, others are refused. It answers unknown and known recipients
 * equally fast. A plugin that routes other recipients registers its hook with `order: 'route'` and runs before.
 */
export function recipientHook(directory: RecipientDirectory): Hook<'rcptTo'> {
  return ({ address, transaction }) => {
    const decide = (user: Addressee | undefined): Verdict => {
      if (user === undefined) {
        return directory.isLocal(address.domain) ? refuseUnknown(address) : refuseRemote(transaction.session);
      }
      // Permanent: mail to a disabled mailbox must not wait in the sender's queue for days.
      if (user.disabled && !isOwnNotice(transaction)) return reject(550, '5.2.1', 'This mailbox is disabled');
      return route({ target: targets.mailbox, destination: user.username });
    };
    const user = directory.lookup(address);
    return user instanceof Promise ? user.then(decide) : decide(user);
  };
}

/** Notices of this server go to the mailbox, which still exists: refused, they would be held for an operator. */
const isOwnNotice = ({ session, reversePath }: Transaction): boolean =>
  session.internal === true && session.user === undefined && reversePath === null;

type Addressee = Pick<MailUser, 'username' | 'disabled'>;

export interface RecipientDirectory {
  /** The recipient's mailbox or destination. */
  lookup(address: Address): Addressee | undefined | Promise<Addressee | undefined>;
  isLocal(domain: string): boolean;
}

function refuseUnknown({ local }: LocalDestination): Verdict {
  return looksRouted(local) ? reject(550, '5.7.1', 'Relaying denied') : reject(550, '5.1.1', 'No such user here');
}

/** A signed-in client gets the reason; others get the default verdict, relaying denied. */
function refuseRemote({ user }: SmtpSession): Verdict {
  if (user === undefined) return next();
  return reject(550, '5.7.1', 'Relaying is not available: this server delivers to its own domains only');
}

type Directory = Pick<UserDirectory, 'find' | 'ownerOf'>;

/** Decides whether a signed-in user may send as an address. */
export interface SenderRule {
  allows(username: string, address: LocalDestination): boolean | Promise<boolean>;
}

/**
 * Addresses that a signed-in user may send as: in the envelope, and in the From and Sender fields that receivers show.
 */
export class SenderPolicy implements SenderRule {
  readonly #directory: Directory;
  readonly #senders: () => UsersSettings['senders'];

  constructor(directory: Directory, senders: () => UsersSettings['senders']) {
    this.#directory = directory;
    this.#senders = senders;
  }

  /** Users of other plugins are judged by those plugins. */
  allows(username: string, address: LocalDestination): boolean {
    const senders = this.#senders();
    const user = senders === 'any' ? undefined : this.#directory.find(username);
    if (user === undefined) return true;
    if (this.#directory.ownerOf(address) === user.username) return true;
    return (
      senders === 'domain' && [user.username, ...user.aliases].some((own) => partsOf(own).domain === address.domain)
    );
  }
}

/** RFC 6409 §6.1: the user must be allowed to use the envelope sender. The null reverse-path is always allowed. */
export function senderHook(policy: SenderRule): Hook<'mailFrom'> {
  return async ({ transaction: { session, reversePath } }) => {
    const { user } = session;
    if (user === undefined || reversePath === null || (await policy.allows(user.username, reversePath))) return next();
    return refuse(user.username, reversePath.address);
  };
}

/** The same for From and Sender, which must all be seen; also adds missing required fields to a submitted message (RFC 6409 §8). */
export function submittedMessageHook(policy: SenderRule, hostname: string, clock: Clock): Hook<'message'> {
  return async ({ transaction: { session, reversePath }, message }) => {
    const { user } = session;
    if (user === undefined) return next();
    if (reversePath !== null && !(await policy.allows(user.username, reversePath))) {
      return refuse(user.username, reversePath.address);
    }
    const authors = authorsOf(message);
    if (message.headersTruncated || authors.length >= maxAddresses) {
      return reject(554, '5.6.0', 'The header is too long to find all its authors');
    }
    for (const written of authors) {
      const address = readAddress(written);
      if (address === undefined || !(await policy.allows(user.username, address)))
        return refuse(user.username, written);
    }
    const missing = missingFields(message, hostname, clock);
    return missing.length === 0 ? next() : change(...missing);
  };
}

const refuse = (username: string, address: string) =>
  reject(550, '5.7.1', `${username} may not send as ${address.replaceAll(/[^ -~]/g, '?').slice(0, 200)}`);

function authorsOf({ headers }: ReceivedMessage): readonly string[] {
  return headers
    .filter(([name]) => /^(?:from|sender|resent-from|resent-sender)$/i.test(name))
    .flatMap(([, value]) => {
      const authors = parseAddressList(value).map(({ address }) => address);
      // Other readers may find an address in `(boss@example.org`, a comment without end.
      return authors.length === 0 && value.includes('@') ? [value] : authors;
    });
}

function readAddress(written: string): LocalDestination | undefined {
  try {
    return parseAddress(written);
  } catch (error) {
    if (isProblem(error)) return undefined;
    throw error;
  }
}

function missingFields({ headers }: ReceivedMessage, hostname: string, clock: Clock): readonly Change[] {
  const names = new Set(headers.map(([name]) => name.toLowerCase()));
  const fields = [
    ['Message-ID', () => `<${uniqueId()}@${hostname}>`],
    ['Date', () => mailDate(new Date(clock.now()))],
  ] as const;
  return fields
    .filter(([name]) => !names.has(name.toLowerCase()))
    .map(([name, value]) => ({ change: 'add-header', name, value: value() }));
}
