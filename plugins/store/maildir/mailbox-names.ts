import type { Directory } from '../../../core/contracts/directory.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isProblem } from '../../../core/problem.js';
import { type MailboxParameters, mailboxNameOf, parseMailboxName } from './mailbox-name.js';
import { type MailboxProvision, usernameOf } from './mailbox-provision.js';

/** A mailbox as answers name it. */
export interface MailboxIdentity {
  readonly domain: string;
  readonly user: string;
  /** `local@domain`. */
  readonly mailbox: string;
}

/** Mailboxes by the names that requests give. */
export class MailboxNames {
  readonly #directory: Pick<Directory, 'find'>;
  readonly #provision: Pick<MailboxProvision, 'one' | 'all'> | undefined;

  /** @param provision makes the mailbox of a user that has none yet */
  constructor(directory: Pick<Directory, 'find'>, provision?: Pick<MailboxProvision, 'one' | 'all'>) {
    this.#directory = directory;
    this.#provision = provision;
  }

  /** What the allow-list does not know may still be a user of the directory. @throws Problem `bad-request` */
  async parse(params: MailboxParameters): Promise<MailboxName> {
    const name = await this.#read(params);
    return this.#provision?.one(name) ?? name;
  }

  /** Before mailboxes are listed. */
  async provideAll(): Promise<void> {
    await this.#provision?.all();
  }

  async #read(params: MailboxParameters): Promise<MailboxName> {
    try {
      return parseMailboxName(params);
    } catch (error) {
      if (!isProblem(error)) throw error;
      const user = await this.#directory.find(`${params.user}@${params.domain.toLowerCase()}`);
      if (user === undefined) throw error;
      return mailboxNameOf(user.address);
    }
  }

  /** That a user has this mailbox: it would be made anew at once. */
  async isInUse(mailbox: MailboxName): Promise<boolean> {
    const user = await this.#directory.find(usernameOf(mailbox));
    if (user === undefined) return false;
    const own = mailboxNameOf(user.address);
    return own.domain === mailbox.domain && own.user === mailbox.user;
  }

  describe({ domain, user }: MailboxName): MailboxIdentity {
    return { domain, user, mailbox: `${user}@${domain}` };
  }

  /** Bytes, or null for none. */
  quota(mailbox: MailboxName): number | null | Promise<number | null> {
    const user = this.#directory.find(usernameOf(mailbox));
    return user instanceof Promise ? user.then((found) => found?.quota ?? null) : (user?.quota ?? null);
  }
}
