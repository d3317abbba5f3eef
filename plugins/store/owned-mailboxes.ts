import { relative, sep } from 'node:path';
import type { Directory } from '../../core/contracts/directory.js';
import type { MailboxOwners, MailboxPlace } from '../../core/contracts/mailbox-owners.js';
import type { AnyEndpoint } from '../../core/http/endpoint.js';
import type { MailboxRemoval } from './folders/mailbox-removal.js';
import {
  isDomain,
  localOfFolder,
  mailboxFolder,
  mailboxNameOfUser,
  type MailboxParameters,
  usernameOf,
} from './maildir/mailbox-name.js';
import type { MaildirTree } from './maildir/maildir.js';
import type { StoreReader } from './messages/store-reader.js';

interface PlaceInput {
  readonly maildirs: MaildirTree;
  readonly reader: StoreReader;
  readonly editor: { readonly mailboxes: MailboxRemoval };
  readonly settled: Promise<void>;
}

/** The mailboxes of this server, for those who divide them among several. */
export function mailboxPlace({ maildirs, reader, editor, settled }: PlaceInput): MailboxPlace {
  return {
    root: maildirs.root,
    folderOf: (username) => mailboxFolder(maildirs.root, mailboxNameOfUser(username)),
    usernameIn(path) {
      const [domain = '', folder = ''] = relative(maildirs.root, path).split(sep);
      const user = localOfFolder(folder);
      return isDomain(domain) && user !== undefined ? usernameOf({ postern: 'mailbox-name', domain, user }) : undefined;
    },
    async list() {
      const found: string[] = [];
      for (const domain of await reader.domains())
        for (const mailbox of (await reader.mailboxes(domain)) ?? []) found.push(usernameOf(mailbox));
      return found;
    },
    async count(username) {
      const mailbox = mailboxNameOfUser(username);
      if (!(await maildirs.exists(mailbox))) return undefined;
      const folders = await reader.folders(mailbox);
      return folders.reduce((sum, { total }) => sum + total, 0);
    },
    async remove(username) {
      const mailbox = mailboxNameOfUser(username);
      if (await maildirs.exists(mailbox)) await editor.mailboxes.remove(mailbox, () => Promise.resolve());
    },
    settled,
  };
}

/** The users whose mailboxes are on this server. */
export function usersHere(
  directory: Directory,
  owners: Pick<MailboxOwners, 'isHere'>,
): Pick<Directory, 'find' | 'list' | 'resolve'> {
  const here = <U extends { readonly username: string }>(user: U | undefined): U | undefined =>
    user !== undefined && owners.isHere(user.username) ? user : undefined;
  return {
    find(username) {
      const user = directory.find(username);
      return user instanceof Promise ? user.then(here) : here(user);
    },
    resolve(address) {
      const user = directory.resolve(address);
      return user instanceof Promise ? user.then(here) : here(user);
    },
    list: async () => (await directory.list()).filter(({ username }) => owners.isHere(username)),
  };
}

/** Runs the handlers of a mailbox at the node that has it, and not while it moves. */
export function atItsOwner(
  endpoint: AnyEndpoint,
  directory: Pick<Directory, 'find'>,
  owners: Pick<MailboxOwners, 'node' | 'otherNode' | 'settle' | 'use'>,
): AnyEndpoint {
  if (!endpoint.path.startsWith('/store/{domain}/{user}')) return endpoint;
  const settled = async (params: unknown): Promise<string> => {
    const { domain, user } = params as MailboxParameters;
    const written = `${user}@${domain.toLowerCase()}`;
    const found = await directory.find(written);
    if (found === undefined) return written;
    await owners.settle(found.username);
    return found.username;
  };
  const there = async <T>(params: unknown, work: () => T | Promise<T>): Promise<T> =>
    owners.use(await settled(params), work);
  const { handle, etag, again } = endpoint;
  return {
    ...endpoint,
    ...(owners.node !== undefined && { nodeOf: async ({ params }) => owners.otherNode(await settled(params)) }),
    handle: (input) => there(input.params, () => handle(input)),
    ...(etag !== undefined && { etag: (input) => there(input.params, () => etag(input)) }),
    ...(again !== undefined && { again: (form) => there(form.params, () => again(form)) }),
  };
}
