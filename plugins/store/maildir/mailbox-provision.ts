import type { Directory } from '../../../core/contracts/directory.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { quoteLocalPart } from '../../../core/mime/address.js';
import type { Log } from '../../../core/log/log.js';
import { mailboxNameOf } from './mailbox-name.js';
import type { MaildirTree } from './maildir.js';
import { makeMissingMailboxes } from './missing-mailboxes.js';

/** The name of the user whose mailbox it is. */
export function usernameOf({ user, domain }: MailboxName): string {
  return `${quoteLocalPart(user)}@${domain}`;
}

/** Users who were added while the server runs have an empty mailbox as soon as somebody looks at it. */
export class MailboxProvision {
  readonly #maildirs: MaildirTree;
  readonly #directory: Pick<Directory, 'find' | 'list'>;
  readonly #log: Log;
  /** Users whose mailboxes have been looked for. */
  readonly #known = new Set<string>();

  constructor(maildirs: MaildirTree, directory: Pick<Directory, 'find' | 'list'>, log: Log) {
    this.#maildirs = maildirs;
    this.#directory = directory;
    this.#log = log;
  }

  /**
   * The mailbox of that name, or of the user who has that name in other letters: `ANNA` is anna's. Nothing is made for a
   * name that no user has.
   */
  async one(mailbox: MailboxName): Promise<MailboxName> {
    if (await this.#maildirs.exists(mailbox)) return mailbox;
    const user = await this.#directory.find(usernameOf(mailbox));
    if (user === undefined) return mailbox;
    const own = mailboxNameOf(user.address);
    if (!(await this.#maildirs.exists(own))) await this.#maildirs.ensure(own);
    return own;
  }

  /** The mailboxes of all users, before they are listed. */
  async all(): Promise<void> {
    const fresh = (await this.#directory.list()).filter(({ username }) => !this.#known.has(username));
    if (fresh.length === 0) return;
    await makeMissingMailboxes(this.#maildirs, { list: () => Promise.resolve(fresh) }, this.#log);
    for (const { username } of fresh) this.#known.add(username);
  }
}
