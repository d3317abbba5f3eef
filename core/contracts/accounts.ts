import { service } from './service.js';

/** Roles contain each other: admin > operate > read. */
export type Role = 'read' | 'operate' | 'admin';

/** Who is signed in to the HTTP interface. */
export interface Account {
  readonly username: string;
  readonly role: Role;
}

/** An account of the HTTP interface. */
export interface ListedAccount {
  readonly username: string;
  readonly role: Role;
  /** Where it is kept; only accounts of the data folder or the cluster can be changed here. */
  readonly source: 'configuration' | 'environment' | 'data folder' | 'cluster';
}

export interface AccountChange {
  readonly role?: Role | undefined;
  readonly password?: string | undefined;
}

export interface NewAccount {
  readonly username: string;
  readonly role: Role;
  readonly password: string;
}

/**
 * Who signs in to the HTTP interface. Changes are durable and in force when they resolve, and end the sessions of their
 * account. They reject with the problems `invalid`, `conflict` (a name that is taken, an account that is kept elsewhere,
 * the last admin), `not-found`, and `unavailable` while the database of a cluster is away.
 */
export interface AccountList {
  /** In order of their names. */
  list(): readonly ListedAccount[];
  /** @throws Problem `not-found` */
  get(username: string): ListedAccount;
  add(account: NewAccount): Promise<ListedAccount>;
  change(username: string, change: AccountChange): Promise<ListedAccount>;
  remove(username: string): Promise<void>;
}
export const accountList = service<AccountList>('postern.accounts');
