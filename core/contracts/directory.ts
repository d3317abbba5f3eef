import type { Address } from '../mime/address.js';
import { service } from './service.js';

/** A mail user, who may authenticate for submission and owns a mailbox. */
export interface MailUser {
  /** `local@domain`, lower case domain; also the name of the mailbox. */
  readonly username: string;
  readonly address: Address;
  readonly aliases: readonly string[];
  /** Bytes; null means none. */
  readonly quota: number | null;
  readonly disabled: boolean;
}

/** Who has a mailbox here. Provided by the `users` plugin; a site may provide it from elsewhere. */
export interface Directory {
  /** Name of the source for display: `users.json`. */
  readonly source: string;
  /**
   * The user with this address, alias, `+detail` form or catch-all. Called for each recipient, so synchronous where
   * possible.
   */
  resolve(address: Address): MailUser | undefined | Promise<MailUser | undefined>;
  /** The user of exactly that name. */
  find(username: string): MailUser | undefined | Promise<MailUser | undefined>;
  list(): Promise<readonly MailUser[]>;
  /** Takes the same time for an unknown user. Disabled users cannot authenticate. */
  authenticate(username: string, password: string): Promise<MailUser | undefined>;
}

export const directory = service<Directory>('postern.directory');
