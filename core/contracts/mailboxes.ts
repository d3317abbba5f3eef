import type { Address, Domain, LocalPart } from '../mime/address.js';
import { service } from './service.js';

/** A validated mailbox name: safe to build a path from. Made by `parseMailboxName` only. */
export interface MailboxName {
  readonly postern: 'mailbox-name';
  readonly domain: Domain;
  readonly user: LocalPart;
}

/** Creates and removes mailboxes; what the users plugin, drafts and the relay need of the store. */
export interface Mailboxes {
  /** The mailbox of that address exists, durably, when this resolves. Idempotent. */
  ensure(address: Address): Promise<void>;
  exists(address: Address): Promise<boolean>;
}
export const mailboxes = service<Mailboxes>('postern.mailboxes');
