import type { DeliveryTarget } from '../pipeline/delivery-target.js';
import { service } from './service.js';

/** The mailboxes of this server, as the plugin that has them tells it. */
export interface MailboxPlace {
  /** Folder below which they are, resolved. Names with a leading dot in it are no domains. */
  readonly root: string;
  /** @param username `local@domain` */
  folderOf(username: string): string;
  /** The user whose mailbox that path is in. */
  usernameIn(path: string): string | undefined;
  /** User names of the mailboxes on the disk. */
  list(): Promise<readonly string[]>;
  /** Number of messages in all folders; undefined without a mailbox. */
  count(username: string): Promise<number | undefined>;
  /** Removes the mailbox with its messages, if there is one. Durable when it resolves. */
  remove(username: string): Promise<void>;
  /** Resolves when changes that a crash had interrupted are complete. */
  readonly settled: Promise<void>;
}

/** Which server has which mailbox, where several servers divide them. A plugin provides it; without one all are here. */
export interface MailboxOwners {
  /** Name of this server among them; undefined when it has all. */
  readonly node: string | undefined;
  /** Called once, before mail is accepted. */
  open(place: MailboxPlace): Promise<void>;
  /** That target for the mailboxes that are here; mail for others goes to the servers that have them. */
  divided(target: DeliveryTarget): DeliveryTarget;
  /** Whether this server has the mailbox. */
  isHere(username: string): boolean;
  /** The server that has the mailbox, where it is another one. */
  otherNode(username: string): string | undefined;
  /** The mailbox of a user gets its server, if it has none yet. @throws Problem `unavailable` */
  settle(username: string): Promise<void>;
  /**
   * Runs work on a mailbox that no other server has; it does not move meanwhile.
   *
   * @throws Problem `misdirected` for a mailbox of another server, `unavailable` while it moves
   */
  use<T>(username: string, work: () => T | Promise<T>): Promise<T>;
}
export const mailboxOwners = service<MailboxOwners>('postern.mailbox-owners');

/** A server that has all mailboxes. */
export const allMailboxesHere: MailboxOwners = {
  node: undefined,
  open: () => Promise.resolve(),
  divided: (target) => target,
  isHere: () => true,
  otherNode: () => undefined,
  settle: () => Promise.resolve(),
  use: async (_, work) => work(),
};
