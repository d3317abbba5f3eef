import type { Clock } from '../../core/clock.js';
import { uniqueId } from '../../core/disk/id.js';
import { parseAddress } from '../../core/mime/address.js';
import { parseAddressList } from '../../core/mime/address-list.js';
import { mailDate } from '../../core/mime/header.js';
import { isProblem } from '../../core/problem.js';
import type { Hook } from '../../core/pipeline/hook.js';
import type { ReceivedMessage } from '../../core/pipeline/transaction.js';
import { change, type Change, next, reject } from '../../core/pipeline/verdict.js';
import type { Destination, UserDirectory } from './directory.js';
import type { UsersSettings } from './options.js';
import { partsOf } from './username.js';

type Directory = Pick<UserDirectory, 'find' | 'ownerOf'>;

/** Whether a signed-in user may send as an address. */
export interface SenderRule {
  allows(username: string, address: Destination): boolean | Promise<boolean>;
}

/** Which addresses a signed-in user may send as: in the envelope, and in the From and Sender fields that receivers show. */
export class SenderPolicy implements SenderRule {
  readonly #directory: Directory;
  readonly #senders: () => UsersSettings['senders'];

  constructor(directory: Directory, senders: () => UsersSettings['senders']) {
    this.#directory = directory;
    this.#senders = senders;
  }

  /** Users of other plugins are theirs to judge. */
  allows(username: string, address: Destination): boolean {
    const senders = this.#senders();
    const user = senders === 'any' ? undefined : this.#directory.find(username);
    if (user === undefined) return true;
    if (this.#directory.ownerOf(address) === user.username) return true;
    return (
      senders === 'domain' && [user.username, ...user.aliases].some((own) => partsOf(own).domain === address.domain)
    );
  }
}

/** RFC 6409 §6.1: the envelope sender is one that the user may use. The null reverse-path always is. */
export function senderHook(policy: SenderRule): Hook<'mailFrom'> {
  return async ({ transaction: { session, reversePath } }) => {
    const { user } = session;
    if (user === undefined || reversePath === null || (await policy.allows(user.username, reversePath))) return next();
    return refuse(user.username, reversePath.address);
  };
}

/** The same for the header fields that name an author; and a submitted message gets the fields that it must have (RFC 6409 §8). */
export function submittedMessageHook(policy: SenderRule, hostname: string, clock: Clock): Hook<'message'> {
  return async ({ transaction: { session, reversePath }, message }) => {
    const { user } = session;
    if (user === undefined) return next();
    if (reversePath !== null && !(await policy.allows(user.username, reversePath))) {
      return refuse(user.username, reversePath.address);
    }
    for (const written of authorsOf(message)) {
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
    .flatMap(([, value]) => parseAddressList(value).map(({ address }) => address));
}

function readAddress(written: string): Destination | undefined {
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
