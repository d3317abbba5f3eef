import { service } from './service.js';

/** A mail user as stored. Records are immutable: a changed user has a new one. */
export interface UserRecord {
  /** `local@domain` in lower case. */
  readonly username: string;
  /** Null: the user cannot sign in. Where the records have `hashOf`, a text that changes with the hash. */
  readonly passwordHash: string | null;
  /** `local@domain` in lower case. A name, of a user or an alias, belongs to one user. */
  readonly aliases: readonly string[];
  /** Bytes; null means none. */
  readonly quota: number | null;
  readonly disabled: boolean;
  /** ISO 8601. */
  readonly createdAt: string;
}

/**
 * The users that the plugin `users` manages: `users.json`, unless a plugin provides them from elsewhere. Reading is
 * synchronous, as each recipient is looked up; a change is durable and visible when it resolves.
 */
export interface UserRecords {
  /** Where they are, for display; absent for the file of the options. */
  readonly source?: string;
  /** In order of their domains and names. */
  list(): readonly UserRecord[];
  readonly count: number;
  get(username: string): UserRecord | undefined;
  /** By username or alias. */
  named(name: string): UserRecord | undefined;
  /** @throws Problem `conflict` when one of its names is taken */
  add(record: UserRecord): Promise<void>;
  /**
   * Applies `change` to the current record, so that concurrent changes add up; again when another server was quicker.
   *
   * @throws Problem `not-found`, `conflict`, and the errors of `change`
   */
  change(username: string, change: (record: UserRecord) => UserRecord): Promise<UserRecord>;
  /** @throws Problem `not-found`, and the errors of `check`, which gets the current record */
  remove(username: string, check?: (record: UserRecord) => void): Promise<void>;
  /**
   * Where records do not have it: the hash of a user's password, null without one. Also called for unknown names,
   * so that they take the same time.
   *
   * @throws Problem `unavailable`
   */
  hashOf?(username: string): Promise<string | null>;
  /**
   * Of records elsewhere: adds the users of a file where there has never been one, all or none. Resolves with their
   * number. @throws Problem `unavailable`
   */
  begin?(ofFile: () => Promise<readonly UserRecord[]>): Promise<number>;
}
export const userRecords = service<UserRecords>('postern.user-records');
