import type { Directory } from '../../core/contracts/directory.js';
import { isProblem } from '../../core/problem.js';
import type { Hook } from '../../core/smtp/hook.js';
import { defer, next } from '../../core/smtp/verdict.js';
import { mailboxNameOf } from './mailbox-name.js';
import type { MailboxQuotas } from './mailbox-quota.js';

/**
 * Refuses a recipient whose mailbox is full, for now: other recipients of the message are not concerned. The size is what
 * MAIL declared (RFC 1870).
 */
export function quotaHook(directory: Pick<Directory, 'resolve'>, quotas: Pick<MailboxQuotas, 'admit'>): Hook<'rcptTo'> {
  return async ({ address, transaction }) => {
    const user = await directory.resolve(address);
    if (user === undefined || user.quota === null) return next();
    try {
      await quotas.admit(mailboxNameOf(user.address), transaction.declaredSize ?? 1);
      return next();
    } catch (error) {
      if (isProblem(error) && error.problem === 'mailbox-full') return defer(452, '4.2.2', 'The mailbox is full');
      throw error;
    }
  };
}
