import type { Directory } from '../../core/contracts/directory.js';
import type { MailboxName } from '../../core/contracts/mailboxes.js';
import { isProblem } from '../../core/problem.js';
import { type MailboxParameters, mailboxNameOf, parseMailboxName } from './mailbox-name.js';

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

  constructor(directory: Pick<Directory, 'find'>) {
    this.#directory = directory;
  }

  /** What the allow-list does not know may still be a user of the directory. @throws Problem `bad-request` */
  async parse(params: MailboxParameters): Promise<MailboxName> {
    try {
      return parseMailboxName(params);
    } catch (error) {
      if (!isProblem(error)) throw error;
      const user = await this.#directory.find(`${params.user}@${params.domain.toLowerCase()}`);
      if (user === undefined) throw error;
      return mailboxNameOf(user.address);
    }
  }

  describe({ domain, user }: MailboxName): MailboxIdentity {
    return { domain, user, mailbox: `${user}@${domain}` };
  }

  /** Bytes, or null for none. */
  async quota({ domain, user }: MailboxName): Promise<number | null> {
    return (await this.#directory.find(`${user}@${domain}`))?.quota ?? null;
  }
}
