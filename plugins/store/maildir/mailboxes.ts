import type { Directory } from '../../../core/contracts/directory.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem } from '../../../core/problem.js';
import { mailboxNameOf, type MailboxParameters, parseMailboxName, usernameOf } from './mailbox-name.js';
import type { MaildirTree } from './maildir.js';

/** A mailbox in responses. */
export interface MailboxIdentity {
  readonly domain: string;
  readonly user: string;
  /** `local@domain`. */
  readonly mailbox: string;
}

/** Resolves mailboxes by the names in requests. */
export class MailboxNames {
  readonly #directory: Pick<Directory, 'find'>;
  readonly #provision: Pick<MailboxProvision, 'ensureOne' | 'ensureAll'> | undefined;

  /** @param provision creates the mailbox of a user that has none yet */
  constructor(directory: Pick<Directory, 'find'>, provision?: Pick<MailboxProvision, 'ensureOne' | 'ensureAll'>) {
    this.#directory = directory;
    this.#provision = provision;
  }

  /** A name with other characters may still be a user of the directory. @throws Problem `bad-request` */
  async parse(params: MailboxParameters): Promise<MailboxName> {
    const name = await this.#read(params);
    return this.#provision?.ensureOne(name) ?? name;
  }

  /** Called before mailboxes are listed. */
  async ensureAll(): Promise<void> {
    await this.#provision?.ensureAll();
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

  /** True when a user has this mailbox: a removed one would be created again. */
  async isInUse(mailbox: MailboxName): Promise<boolean> {
    const user = await this.#directory.find(usernameOf(mailbox));
    if (user === undefined) return false;
    const own = mailboxNameOf(user.address);
    return own.domain === mailbox.domain && own.user === mailbox.user;
  }

  describe({ domain, user }: MailboxName): MailboxIdentity {
    return { domain, user, mailbox: `${user}@${domain}` };
  }

  /** Bytes, or null for no quota. */
  quota(mailbox: MailboxName): number | null | Promise<number | null> {
    const user = this.#directory.find(usernameOf(mailbox));
    return user instanceof Promise ? user.then((found) => found?.quota ?? null) : (user?.quota ?? null);
  }
}

/** Users added at runtime have an empty mailbox as soon as it is read. */
export class MailboxProvision {
  readonly #maildirs: MaildirTree;
  readonly #directory: Pick<Directory, 'find' | 'list'>;
  readonly #log: Log;
  /** Users whose mailboxes are known to exist. */
  readonly #known = new Set<string>();

  constructor(maildirs: MaildirTree, directory: Pick<Directory, 'find' | 'list'>, log: Log) {
    this.#maildirs = maildirs;
    this.#directory = directory;
    this.#log = log;
  }

  /**
   * The mailbox of that name, or of the user whose name differs only in case: `ANNA` is anna's. Creates nothing for an
   * unknown user.
   */
  async ensureOne(mailbox: MailboxName): Promise<MailboxName> {
    if (await this.#maildirs.exists(mailbox)) return mailbox;
    const user = await this.#directory.find(usernameOf(mailbox));
    if (user === undefined) return mailbox;
    const own = mailboxNameOf(user.address);
    if (!(await this.#maildirs.exists(own))) await this.#maildirs.ensure(own);
    return own;
  }

  /** The mailboxes of all users, before they are listed. */
  async ensureAll(): Promise<void> {
    const fresh = (await this.#directory.list()).filter(({ username }) => !this.#known.has(username));
    if (fresh.length === 0) return;
    await createMissingMailboxes(this.#maildirs, { list: () => Promise.resolve(fresh) }, this.#log);
    for (const { username } of fresh) this.#known.add(username);
  }
}

const maxParallel = 32;

/**
 * Creates missing mailboxes of directory users, so that a user without mail has an empty one. A failure is logged: the
 * first delivery tries again.
 */
export async function createMissingMailboxes(
  maildirs: MaildirTree,
  directory: Pick<Directory, 'list'>,
  log: Log,
): Promise<void> {
  const users = [...(await directory.list())];
  async function work(): Promise<void> {
    for (let user = users.pop(); user !== undefined; user = users.pop()) {
      try {
        const name = mailboxNameOf(user.address);
        if (!(await maildirs.exists(name))) await maildirs.ensure(name);
      } catch (error) {
        log.warn({ err: error, username: user.username }, 'the mailbox of a user could not be made');
      }
    }
  }
  await Promise.all(Array.from({ length: maxParallel }, work));
}
