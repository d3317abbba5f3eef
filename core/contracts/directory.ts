import type { Address } from '../mime/address.js';
import { service } from '../host/service.js';

/** A mail user: who may sign in to submission, and whose mailbox it is. */
export interface MailUser {
  /** `local@domain`, lower case domain; also the name of the mailbox. */
  readonly username: string;
  readonly address: Address;
  readonly aliases: readonly string[];
  /** Bytes; null means none. */
  readonly quota: number | null;
  readonly disabled: boolean;
}

/** Who has a mailbox here. Filled by the `users` plugin; a site may fill it from elsewhere. */
export interface Directory {
  /** Name of the source, as answers show it: `users.json`. */
  readonly source: string;
  /** The user whose address, alias, `+detail` form or catch-all this is. Asked for each recipient: no promise where none is needed. */
  resolve(address: Address): MailUser | undefined | Promise<MailUser | undefined>;
  /** The user of exactly that name. */
  find(username: string): MailUser | undefined | Promise<MailUser | undefined>;
  list(): Promise<readonly MailUser[]>;
  /** Takes the same time for an unknown user. Disabled users never sign in. */
  authenticate(username: string, password: string): Promise<MailUser | undefined>;
}

export const directory = service<Directory>('postern.directory');
