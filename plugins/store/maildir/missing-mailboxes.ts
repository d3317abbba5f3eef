import type { Directory } from '../../../core/contracts/directory.js';
import type { Log } from '../../../core/log/log.js';
import { mailboxNameOf } from './mailbox-name.js';
import type { MaildirTree } from './maildir.js';

const atOnce = 32;

/**
 * Makes the mailboxes that users of the directory do not have yet, so that a user who never got mail has an empty one.
 * A failure is logged: the first delivery tries again.
 */
export async function makeMissingMailboxes(
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
  await Promise.all(Array.from({ length: atOnce }, work));
}
