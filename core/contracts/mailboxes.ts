import type { Readable } from 'node:stream';
import type { Address, Domain, LocalPart } from '../mime/address.js';
import { service } from './service.js';

/** A validated mailbox name: safe to build a path from. Made by `parseMailboxName` only. */
export interface MailboxName {
  readonly postern: 'mailbox-name';
  readonly domain: Domain;
  readonly user: LocalPart;
}

export interface MailFolder {
  /** Levels joined by `.`; `INBOX` for the mailbox itself. */
  readonly name: string;
  /** Messages. */
  readonly total: number;
  readonly unread: number;
}

/** A message in a folder. */
export interface StoredMessage {
  /** Another one once the message is filed in another folder. */
  readonly id: string;
  readonly subject: string;
  readonly from: string | null;
  readonly internetMessageId: string | null;
  /** ISO 8601. */
  readonly receivedAt: string;
  /** Bytes. */
  readonly size: number;
  readonly unread: boolean;
  readonly flagged: boolean;
}

export interface MessagesPage {
  /** Newest first. */
  readonly items: readonly StoredMessage[];
  /** For the next page; null on the last one. */
  readonly nextCursor: string | null;
}

/** Mailboxes of this server, for other plugins. Every change is durable when it resolves. */
export interface Mailboxes {
  /** The mailbox of that address exists, durably, when this resolves. Idempotent. */
  ensure(address: Address): Promise<void>;
  exists(address: Address): Promise<boolean>;
  /** Addresses of all mailboxes, sorted by domain and local part. */
  list(): Promise<readonly string[]>;
  /** @throws Problem `not-found` for the mailbox */
  folders(mailbox: Address): Promise<readonly MailFolder[]>;
  /**
   * One page, newest first; `limit` at most 500, default 50.
   *
   * @throws Problem `not-found` for mailbox or folder, `bad-request` for a name or cursor that is none
   */
  messages(
    mailbox: Address,
    folder: string,
    options?: { readonly limit?: number; readonly cursor?: string },
  ): Promise<MessagesPage>;
  /** The bytes of a message; the caller reads or destroys the stream. @throws Problem `not-found` */
  read(mailbox: Address, folder: string, id: string): Promise<Readable>;
  /**
   * Adds a message, unread unless `read` is true, and resolves with its id.
   *
   * @throws Problem `not-found`, `mailbox-full`, `storage-full`, `invalid` for an empty one, and errors of the stream
   */
  append(
    mailbox: Address,
    folder: string,
    message: AsyncIterable<Buffer>,
    options?: { readonly read?: boolean },
  ): Promise<string>;
  /**
   * Moves messages to another folder, with their flags; resolves with the new ids by the old ones. Ids that are not there
   * are left out.
   *
   * @throws Problem `not-found` for a folder, `invalid` for the same one
   */
  file(mailbox: Address, from: string, to: string, ids: readonly string[]): Promise<Readonly<Record<string, string>>>;
  /** Sets or clears a flag, and resolves with the ids that are not there. @throws Problem `not-found` for the folder */
  mark(
    mailbox: Address,
    folder: string,
    ids: readonly string[],
    mark: 'read' | 'unread' | 'flag' | 'unflag',
  ): Promise<readonly string[]>;
}
export const mailboxes = service<Mailboxes>('postern.mailboxes');
