import { z } from 'zod';
import { entryStates, type NewEntry } from '../../../core/contracts/queue-entry.js';

/** Parses queue entries from JSON in the journal and the snapshot. */

export const StoredReply = z.object({
  code: z.number(),
  status: z.string(),
  text: z.string(),
  host: z.string().nullable(),
  at: z.number(),
});

const Hop = z.object({ target: z.string(), destination: z.string(), data: z.exactOptional(z.unknown()) });

const recipientExtras = {
  hop: z.exactOptional(Hop),
  notify: z.exactOptional(z.array(z.enum(['success', 'failure', 'delay', 'never']))),
  originalRecipient: z.exactOptional(z.string()),
  lastReply: z.exactOptional(StoredReply),
};

const StoredRecipientExtras = z.object(recipientExtras);

const extras = {
  ret: z.exactOptional(z.enum(['full', 'hdrs'])),
  envelopeId: z.exactOptional(z.string()),
  hold: z.exactOptional(z.string()),
  discardAt: z.exactOptional(z.number()),
  noticeOf: z.exactOptional(z.string()),
  stranger: z.exactOptional(z.literal(true)),
};

const StoredExtras = z.object(extras);

export const StoredEnvelope = z.object({
  uid: z.string().min(1),
  sender: z.string().nullable(),
  recipients: z.array(z.object({ address: z.string(), destination: z.string(), ...recipientExtras })).min(1),
  protocol: z.enum(['smtp', 'lmtp']),
  route: z.string().nullable(),
  eightBit: z.boolean(),
  smtputf8: z.boolean(),
  size: z.number().min(0),
  subject: z.string(),
  internetMessageId: z.string().nullable(),
  queuedAt: z.number(),
  expiresAt: z.number(),
  warnAt: z.number().nullable(),
  nextAttempt: z.number(),
  source: z.object({ listener: z.string(), user: z.string().nullable(), remoteAddress: z.string() }),
  ...extras,
});

export const StoredNotice = z.object({
  id: z.string(),
  kind: z.enum(['failed', 'delayed', 'relayed', 'delivered']),
  recipients: z.array(z.string()),
  reason: z.exactOptional(z.string()),
  at: z.number(),
});

export const StoredAttempt = z.object({
  at: z.number(),
  ms: z.number(),
  destination: z.string(),
  host: z.string().nullable(),
  tls: z.string().nullable(),
  recipients: z.array(z.string()),
  outcome: z.enum(['delivered', 'partial', 'deferred', 'failed', 'lost']),
  reply: StoredReply.nullable(),
  possibleDuplicate: z.exactOptional(z.boolean()),
  manual: z.exactOptional(z.boolean()),
});

export const StoredPending = z.object({
  operation: z.enum(['delete', 'bounce', 'hold']),
  reason: z.exactOptional(z.string()),
  status: z.exactOptional(z.string()),
  until: z.exactOptional(z.number()),
  /** Absent: all. */
  recipients: z.exactOptional(z.array(z.int().min(0))),
});

export const StoredLease = z.object({ token: z.number(), at: z.number(), recipients: z.array(z.int().min(0)) });

export const StoredState = z.enum(entryStates);

/** The parts of an envelope that are not fields of the entry in memory. A tuple, since there are many of them. */
const Rest = z.tuple([
  z.enum(['smtp', 'lmtp']),
  z.string().nullable(),
  z.string(),
  z.string().nullable(),
  z.number().nullable(),
  z.number(),
  z.string(),
  z.string().nullable(),
  z.string(),
  z.number(),
  StoredExtras.optional(),
  z.array(StoredRecipientExtras).optional(),
]);

const eightBitFlag = 1;

const smtputf8Flag = 2;

/** The fields of an entry in memory that make up its envelope. */
interface StoredFields extends Pick<NewEntry, 'uid' | 'sender' | 'size' | 'queuedAt' | 'expiresAt'> {
  readonly recipients: readonly Pick<NewEntry['recipients'][number], 'address' | 'destination'>[];
  /** As `encodeEnvelope` returned it. */
  readonly envelope: string;
}

export function encodeEnvelope(entry: NewEntry): string {
  const { protocol, route, subject, internetMessageId, warnAt, nextAttempt, source } = entry;
  const { ret, envelopeId, hold, discardAt, noticeOf, stranger } = entry;
  const flags = (entry.eightBit ? eightBitFlag : 0) + (entry.smtputf8 ? smtputf8Flag : 0);
  const extras = entry.recipients.map(({ address: _address, destination: _destination, ...rest }) => rest);
  const list: unknown[] = [protocol, route, subject, internetMessageId, warnAt, nextAttempt];
  list.push(source.listener, source.user, source.remoteAddress, flags);
  const hasRecipientExtras = extras.some((extra) => Object.keys(extra).length > 0);
  const hasExtras = [ret, envelopeId, hold, noticeOf, stranger].some((extra) => extra !== undefined);
  if (hasExtras || hasRecipientExtras) list.push({ ret, envelopeId, hold, discardAt, noticeOf, stranger });
  if (hasRecipientExtras) list.push(extras);
  return JSON.stringify(list);
}

/**
 * Subject and Message-ID as written in the JSON, with escapes, without parsing it: searches read them of every entry.
 * The fields before them, protocol and route, contain neither comma nor quotation mark.
 */
export function headerTexts({ envelope }: Pick<StoredFields, 'envelope'>): readonly string[] {
  const subject = envelope.indexOf(',', envelope.indexOf(',') + 1) + 1;
  const behind = endOfText(envelope, subject);
  const texts = [envelope.slice(subject + 1, behind)];
  if (envelope[behind + 2] === '"') texts.push(envelope.slice(behind + 3, endOfText(envelope, behind + 2)));
  return texts;
}

/** Index of the closing quotation mark; `start` is that of the opening one. */
function endOfText(json: string, start: number): number {
  for (let at = json.indexOf('"', start + 1); ; at = json.indexOf('"', at + 1)) {
    if (at < 0) return json.length;
    let escapes = 0;
    while (json[at - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return at;
  }
}

/** The envelope as it was accepted. */
export function decodeEnvelope(entry: StoredFields): NewEntry {
  const [
    protocol,
    route,
    subject,
    internetMessageId,
    warnAt,
    nextAttempt,
    listener,
    user,
    remoteAddress,
    flags,
    ...more
  ] = Rest.parse(JSON.parse(entry.envelope));
  const [extras, recipientExtras] = more;
  const { uid, sender, size, queuedAt, expiresAt } = entry;
  return {
    uid,
    sender,
    recipients: entry.recipients.map(({ address, destination }, index) => ({
      address,
      destination,
      ...recipientExtras?.[index],
    })),
    protocol,
    route,
    eightBit: (flags & eightBitFlag) > 0,
    smtputf8: (flags & smtputf8Flag) > 0,
    size,
    subject,
    internetMessageId,
    queuedAt,
    expiresAt,
    warnAt,
    nextAttempt,
    source: { listener, user, remoteAddress },
    ...extras,
  };
}
