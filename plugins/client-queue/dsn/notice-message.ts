import { createHash } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import type { Entry, Notice, NoticeKind } from '../../../core/contracts/queue-entry.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { composeDsn, type DsnRecipient } from './dsn.js';
import { encodedMessage, maxLineOctets, planEncoding } from '../../../core/mime/transfer-encoding.js';
import { isProblem } from '../../../core/problem.js';
import { originalAddress } from '../../../core/smtp/protocol/parameters.js';
import { messageHead, messageStart } from '../delivery/outgoing-message.js';

/** Maximum size of a message that is returned whole when its sender did not use RET. Bytes. */
const usuallyReturned = 100 * 1024;
const maxReturned = 4 * 1024 * 1024;

/** The notice for some recipients of an entry; deterministic for the same input. */
export async function noticeMessage(
  entry: Entry,
  notices: readonly Notice[],
  id: string,
  {
    queue,
    hostname,
    from,
  }: {
    readonly queue: Pick<RelayQueue, 'open'>;
    readonly hostname: string;
    /** Address of the mail system, for `From:`. */
    readonly from: string;
  },
): Promise<Buffer> {
  const [first] = notices;
  const kind = first?.kind ?? 'failed';
  const { accepted } = entry;
  const mayReturnAll = kind === 'failed' && accepted.ret !== 'hdrs' && accepted.size <= returnable(accepted.ret);
  const original = await returned(queue, entry.uid, mayReturnAll, accepted.size);
  const reason = notices.find((notice) => notice.reason !== undefined)?.reason;
  return composeDsn({
    reportingMta: hostname,
    from,
    to: entry.sender ?? '',
    date: new Date(Math.max(...notices.map(({ at }) => at))),
    messageId: `<${id}@${hostname}>`,
    boundary: `=_${createHash('sha256').update(id).digest('hex').slice(0, 40)}`,
    arrival: new Date(entry.queuedAt),
    ...(accepted.envelopeId !== undefined && { envelopeId: accepted.envelopeId }),
    recipients: notices.flatMap(({ recipients }) => recipients).map((address) => recipientOf(entry, address, kind)),
    subject: entry.subject,
    originalMessageId: entry.internetMessageId,
    ...(reason !== undefined && { reason }),
    returned: original.bytes,
    returnedWhole: original.isWhole,
    smtputf8: accepted.smtputf8,
  });
}

const returnable = (ret: 'full' | 'hdrs' | undefined): number => (ret === 'full' ? maxReturned : usuallyReturned);

function recipientOf(entry: Entry, address: string, action: NoticeKind): DsnRecipient {
  const found = entry.recipients.find((recipient) => recipient.address === address);
  const reply = found?.lastReply ?? null;
  const succeeded = action === 'delivered' || action === 'relayed';
  return {
    address,
    ...(found?.originalRecipient !== undefined && { originalRecipient: originalAddress(found.originalRecipient) }),
    action,
    status: statusOf(action, reply?.status),
    diagnostic: reply === null || succeeded ? null : `${reply.code} ${reply.status} ${reply.text}`,
    host: succeeded ? null : (reply?.host ?? null),
    lastAttempt: reply === null ? null : new Date(reply.at),
    ...(action === 'delayed' && { retryUntil: new Date(entry.expiresAt) }),
  };
}

/** The class of the status follows the action (RFC 3464 §2.3.4); the rest is from the server's reply. */
function statusOf(action: NoticeKind, given = ''): string {
  const digit = action === 'failed' ? '5' : action === 'delayed' ? '4' : '2';
  if (digit === '2') return action === 'delivered' ? '2.1.5' : '2.0.0';
  const [, rest] = /^[245](\.\d{1,3}\.\d{1,3})$/.exec(given) ?? [];
  return `${digit}${rest ?? '.0.0'}`;
}

interface Returned {
  readonly bytes: Buffer;
  readonly isWhole: boolean;
}

async function returned(queue: Pick<RelayQueue, 'open'>, uid: string, whole: boolean, size: number): Promise<Returned> {
  try {
    const bytes = whole ? await messageStart(queue, uid, size) : await messageHead(queue, uid);
    return await withShortLines({ bytes, isWhole: whole });
  } catch (error) {
    // The message is gone: the notice is sent without it.
    if (isProblem(error) && error.problem === 'not-found') return { bytes: Buffer.from('\r\n'), isWhole: whole };
    throw error;
  }
}

/**
 * A line over 998 octets (RFC 5321 §4.5.3.1.6) may prevent delivery of the notice: the message is encoded, or only its
 * header is returned, with such lines cut.
 */
async function withShortLines({ bytes, isWhole }: Returned): Promise<Returned> {
  const plan = await planEncoding([bytes], 'short-lines');
  if (plan.outcome === 'as-it-is') return { bytes, isWhole };
  if (plan.outcome === 'encode') return { bytes: await buffer(encodedMessage([bytes], plan)), isWhole };
  const end = bytes.indexOf('\r\n\r\n');
  const lines = bytes.toString('latin1', 0, end < 0 ? bytes.length : end + 4).split('\r\n');
  const cut = lines.map((line) => line.slice(0, maxLineOctets)).join('\r\n');
  return { bytes: Buffer.from(cut, 'latin1'), isWhole: false };
}
