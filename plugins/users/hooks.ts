import { secondsText } from '../../core/text/format.js';
import type { MailUser } from '../../core/contracts/directory.js';
import type { Address } from '../../core/mime/address.js';
import { isProblem } from '../../core/problem.js';
import type { Hook } from '../../core/pipeline/hook.js';
import type { SmtpSession, Transaction } from '../../core/pipeline/transaction.js';
import { accept, defer, next, reject, route, type Verdict } from '../../core/pipeline/verdict.js';
import { looksRouted, type Destination } from './directory.js';
import type { SignedInSessions } from './sessions.js';
import type { SignIns } from './sign-ins.js';
import type { CountSignIn } from './users-metrics.js';

/** Checks AUTH. What is wrong is left to the chain, which answers 535 5.7.8 when nobody said yes. */
export function signInHook(
  signIns: SignIns,
  sessions: Pick<SignedInSessions, 'begin'>,
  count: CountSignIn,
): Hook<'auth'> {
  return async ({ session, username, password }) => {
    try {
      const { address } = session.remote;
      const result = await signIns.attempt({ username, password, address, exempt: session.exempt });
      count('smtp', result.outcome);
      if (result.outcome === 'refused') return next();
      if (result.outcome === 'accepted') {
        sessions.begin(session, result.user.username);
        return accept({ username: result.user.username });
      }
      return defer(454, '4.7.0', `Too many failed sign-ins, try again in ${secondsText(result.retryAfter)}`);
    } catch (error) {
      if (!isProblem(error)) throw error;
      count('smtp', 'unavailable');
      // RFC 4954 §6: a temporary failure of the server.
      return defer(454, '4.7.0', 'Temporary authentication failure');
    }
  };
}

/**
 * Decides about every recipient: ours go to their mailbox, nobody else's go anywhere. It answers at once, and as fast for the
 * unknown as for the known. A plugin that knows a way for others registers its hook with `order: 'route'`, and is asked before.
 */
export function recipientHook(directory: RecipientDirectory): Hook<'rcptTo'> {
  return ({ address, transaction }) => {
    const decide = (user: Addressee | undefined): Verdict => {
      if (user === undefined) {
        return directory.isLocal(address.domain) ? refuseUnknown(address) : refuseForeign(transaction.session);
      }
      // For good: mail to a mailbox that somebody switched off shall not wait in the sender's queue for days.
      if (user.disabled && !isOwnNotice(transaction)) return reject(550, '5.2.1', 'This mailbox is disabled');
      return route({ target: 'mailbox', destination: user.username });
    };
    const user = directory.lookup(address);
    return user instanceof Promise ? user.then(decide) : decide(user);
  };
}

/** What this server tells a sender of its own goes into the mailbox, which is still there: refused, it would be held for an operator. */
const isOwnNotice = ({ session, reversePath }: Transaction): boolean =>
  session.internal === true && session.user === undefined && reversePath === null;

type Addressee = Pick<MailUser, 'username' | 'disabled'>;

export interface RecipientDirectory {
  /** Whose mail it is. */
  lookup(address: Address): Addressee | undefined | Promise<Addressee | undefined>;
  isLocal(domain: string): boolean;
}

function refuseUnknown({ local }: Destination): Verdict {
  return looksRouted(local) ? reject(550, '5.7.1', 'Relaying denied') : reject(550, '5.1.1', 'No such user here');
}

/** Who has signed in is told why; to everybody else the chain says that relaying is denied. */
function refuseForeign({ user }: SmtpSession): Verdict {
  if (user === undefined) return next();
  return reject(550, '5.7.1', 'Relaying is not available: this server delivers to its own domains only');
}
