import type { Directory, MailUser } from '../../../core/contracts/directory.js';
import { isProblem } from '../../../core/problem.js';
import type { Hook } from '../../../core/pipeline/hook.js';
import { defer, next, type Verdict } from '../../../core/pipeline/verdict.js';
import { mailboxNameOf } from '../maildir/mailbox-name.js';
import type { MailboxQuotas } from './mailbox-quota.js';

/**
 * Refuses a recipient whose mailbox is full, for now: other recipients of the message are not concerned. The size is what
 * MAIL declared (RFC 1870).
 */
export function quotaHook(directory: Pick<Directory, 'resolve'>, quotas: Pick<MailboxQuotas, 'admit'>): Hook<'rcptTo'> {
  const room = (user: MailUser | undefined, bytes: number): Verdict | Promise<Verdict> =>
    user === undefined || user.quota === null ? next() : roomFor(user, bytes, quotas);
  return ({ address, transaction }) => {
    const user = directory.resolve(address);
    const bytes = transaction.declaredSize ?? 1;
    return user instanceof Promise ? user.then((found) => room(found, bytes)) : room(user, bytes);
  };
}

async function roomFor(user: MailUser, bytes: number, quotas: Pick<MailboxQuotas, 'admit'>): Promise<Verdict> {
  try {
    await quotas.admit(mailboxNameOf(user.address), bytes);
    return next();
  } catch (error) {
    if (isProblem(error) && error.problem === 'mailbox-full') return defer(452, '4.2.2', 'The mailbox is full');
    throw error;
  }
}
