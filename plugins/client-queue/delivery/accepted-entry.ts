import type { NewEntry, NewRecipient, RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import { isAscii } from '../../../core/mime/character.js';
import { scanHeader } from '../../../core/mime/header.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';
import { readDestination } from './destination-key.js';

/** Notes that say more of a transaction than SMTP can; whoever submits may set them. */
export const queueNotes = {
  /** Uid of the entry that a notice is about. */
  noticeOf: 'client-queue.notice-of',
} as const;

export interface AcceptedInput {
  /** Appended to the id of the transaction, where one transaction makes several entries. */
  readonly suffix?: string;
  readonly protocol?: 'smtp' | 'lmtp';
  readonly now: number;
  /** Milliseconds. */
  readonly expireAfter: number;
  /** Milliseconds; 0 for never. */
  readonly warnAfter: number;
  /** The first attempt, counted from now in milliseconds. */
  readonly delay?: number;
  readonly hold?: string;
  /** A notice that is held is kept for so long; 0 for ever. Milliseconds. */
  readonly keepDeadLetter?: number;
}

/** Where a recipient goes, and what is known of it already. */
export interface Routed {
  readonly recipient: Recipient;
  readonly destination: string;
  readonly hop?: NonNullable<NewRecipient['hop']>;
  readonly lastReply?: RecordedReply;
}

const longestSubject = 200;

/** The entry that a transaction becomes. */
export function acceptedEntry(
  transaction: Transaction,
  message: SpooledMessage,
  routed: readonly Routed[],
  input: AcceptedInput,
): NewEntry {
  const { id, session, reversePath, smtputf8, dsn, notes } = transaction;
  const { suffix, protocol = 'smtp', now, expireAfter, warnAfter, delay = 0, hold, keepDeadLetter = 0 } = input;
  const header = scanHeader(message.head);
  const subject = decodeWords(header.first('subject') ?? '').slice(0, longestSubject);
  const messageId = header.first('message-id')?.slice(0, 998);
  const noticeOf = notes.get(queueNotes.noticeOf);
  const isInternational = (text: string): boolean => !isAscii(text);
  return {
    uid: suffix === undefined ? id : `${id}-${suffix}`,
    sender: reversePath?.address ?? null,
    recipients: unique(routed).map(newRecipient),
    protocol,
    route: routeOf(routed),
    ...(dsn?.ret !== undefined && { ret: dsn.ret }),
    ...(dsn?.envelopeId !== undefined && { envelopeId: dsn.envelopeId }),
    eightBit: transaction.body === '8BITMIME',
    smtputf8:
      smtputf8 &&
      (isInternational(reversePath?.address ?? '') ||
        routed.some(({ recipient }) => recipient.address.international) ||
        message.head.some((byte) => byte > 127)),
    size: message.size - message.traceOffset,
    subject,
    internetMessageId: messageId === undefined || messageId === '' ? null : messageId,
    queuedAt: now,
    expiresAt: now + expireAfter,
    warnAt: warnAfter === 0 || reversePath === null || transaction.stranger === true ? null : now + warnAfter,
    nextAttempt: now + delay,
    ...(hold !== undefined && { hold }),
    ...(hold !== undefined && noticeOf !== undefined && keepDeadLetter > 0 && { discardAt: now + keepDeadLetter }),
    source: {
      listener: session.listener.name,
      user: session.user?.username ?? null,
      remoteAddress: session.remote.address,
    },
    ...(typeof noticeOf === 'string' && { noticeOf }),
  };
}

function newRecipient({ recipient, destination, hop, lastReply }: Routed): NewRecipient {
  const { notify, originalRecipient } = recipient.dsn ?? {};
  return {
    address: recipient.address.address,
    destination,
    ...(hop !== undefined && { hop }),
    ...(notify !== undefined && { notify }),
    ...(originalRecipient !== undefined && { originalRecipient }),
    ...(lastReply !== undefined && { lastReply }),
  };
}

/** Who was named twice gets it once. */
function unique(routed: readonly Routed[]): readonly Routed[] {
  const byAddress = new Map<string, Routed>();
  for (const one of routed) {
    const key = `${one.recipient.address.address}\n${one.destination}\n${one.hop?.destination ?? ''}`;
    if (!byAddress.has(key)) byAddress.set(key, one);
  }
  return [...byAddress.values()];
}

/** The route that all recipients take, if they take one. */
function routeOf(routed: readonly Routed[]): string | null {
  const routes = new Set(
    routed.map(({ destination }) => {
      const read = readDestination(destination);
      return read.kind === 'route' ? read.route : null;
    }),
  );
  const [only = null] = routes;
  return routes.size === 1 ? only : null;
}
