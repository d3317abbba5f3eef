import { openDocument, type Document } from '../../core/disk/document.js';
import type { UserRecord, UserRecords } from '../../core/contracts/user-records.js';
import { problem } from '../../core/problem.js';
import { orderOf, UsersFile } from './user.js';

type Draft = UsersFile['users'][number];

/** The users in a file, indexed by all their names. */
export class FileUserRecords implements UserRecords {
  readonly #document: Document<UsersFile>;
  #indexed: UsersFile | undefined;
  #byName = new Map<string, UserRecord>();
  #ordered: { readonly of: UsersFile; readonly records: readonly UserRecord[] } | undefined;

  constructor(document: Document<UsersFile>) {
    this.#document = document;
  }

  /** In order of their names, sorted once after each change. */
  list(): readonly UserRecord[] {
    const { data } = this.#document;
    if (this.#ordered?.of !== data) this.#ordered = { of: data, records: inOrder(data.users) };
    return this.#ordered.records;
  }

  get count(): number {
    return this.#document.data.users.length;
  }

  get(username: string): UserRecord | undefined {
    const found = this.#index().get(username);
    return found?.username === username ? found : undefined;
  }

  named(name: string): UserRecord | undefined {
    return this.#index().get(name);
  }

  async add(record: UserRecord): Promise<void> {
    await this.#document.update(({ users }) => {
      refuseTaken(users, record);
      users.push({ ...record, aliases: [...record.aliases] });
    });
  }

  async change(username: string, change: (record: UserRecord) => UserRecord): Promise<UserRecord> {
    let changed: UserRecord | undefined;
    await this.#document.update(({ users }) => {
      const place = placeOf(users, username);
      changed = change(users[place] ?? unknownUser(username));
      refuseTaken(users.toSpliced(place, 1), changed);
      users[place] = { ...changed, aliases: [...changed.aliases] };
    });
    return changed ?? unknownUser(username);
  }

  async remove(username: string, check?: (record: UserRecord) => void): Promise<void> {
    await this.#document.update(({ users }) => {
      const place = placeOf(users, username);
      check?.(users[place] ?? unknownUser(username));
      users.splice(place, 1);
    });
  }

  /** The document is a new object after every change, so the index is valid for the same object. */
  #index(): ReadonlyMap<string, UserRecord> {
    const { data } = this.#document;
    if (this.#indexed !== data) {
      this.#byName = new Map(
        data.users.flatMap((user) => [user.username, ...user.aliases].map((name) => [name, user])),
      );
      this.#indexed = data;
    }
    return this.#byName;
  }
}

/** Throws a start error that names the file when it is invalid. */
export async function openUserRecords(file: string): Promise<FileUserRecords> {
  return new FileUserRecords(await openDocument({ file, schema: UsersFile, initial: { users: [] } }));
}

function placeOf(users: readonly Draft[], username: string): number {
  const place = users.findIndex((user) => user.username === username);
  return place === -1 ? unknownUser(username) : place;
}

function unknownUser(username: string): never {
  throw problem('not-found', `There is no user ${username}.`);
}

function refuseTaken(others: readonly UserRecord[], { username, aliases }: UserRecord): void {
  const wanted = new Set([username, ...aliases]);
  for (const other of others) {
    const taken = [other.username, ...other.aliases].find((name) => wanted.has(name));
    if (taken === undefined) continue;
    throw problem(
      'conflict',
      `${taken} is taken: it ${taken === other.username ? 'is a user' : `leads to ${other.username}`}.`,
    );
  }
}

/** By domain, then by local part. */
function inOrder(users: readonly UserRecord[]): readonly UserRecord[] {
  return users
    .map((user) => ({ user, place: orderOf(user.username) }))
    .toSorted((one, other) => (one.place < other.place ? -1 : Number(one.place > other.place)))
    .map(({ user }) => user);
}
