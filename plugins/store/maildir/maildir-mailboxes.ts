import type { Mailboxes } from '../../../core/contracts/mailboxes.js';
import { asStorageProblem } from '../../../core/disk/fault.js';
import { mailboxNameOf } from './mailbox-name.js';
import type { MaildirTree } from './maildir.js';

/** The mailboxes as other plugins see them. Faults of the disk are problems. */
export function maildirMailboxes(maildirs: MaildirTree): Mailboxes {
  async function asked<T>(answer: () => Promise<T>): Promise<T> {
    try {
      return await answer();
    } catch (error) {
      throw asStorageProblem(error);
    }
  }
  return {
    ensure: (address) =>
      asked(async () => {
        await maildirs.ensure(mailboxNameOf(address));
      }),
    exists: (address) => asked(() => maildirs.exists(mailboxNameOf(address))),
  };
}
