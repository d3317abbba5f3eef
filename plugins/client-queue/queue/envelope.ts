import { z } from 'zod';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import type { QueuedEntry } from './queued-entry.js';
import { StoredExtras, StoredRecipientExtras } from './stored-envelope.js';

/** Everything of an envelope that is not a field of the entry in memory: few names, for there are many of them. */
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

export function encodeEnvelope(entry: NewEntry): string {
  const { protocol, route, subject, internetMessageId, warnAt, nextAttempt, source } = entry;
  const { ret, envelopeId, hold, discardAt, noticeOf } = entry;
  const flags = (entry.eightBit ? eightBitFlag : 0) + (entry.smtputf8 ? smtputf8Flag : 0);
  const extras = entry.recipients.map(({ address: _address, destination: _destination, ...rest }) => rest);
  const list: unknown[] = [protocol, route, subject, internetMessageId, warnAt, nextAttempt];
  list.push(source.listener, source.user, source.remoteAddress, flags);
  const hasRecipientExtras = extras.some((extra) => Object.keys(extra).length > 0);
  const hasExtras = ret !== undefined || envelopeId !== undefined || hold !== undefined || noticeOf !== undefined;
  if (hasExtras || hasRecipientExtras) list.push({ ret, envelopeId, hold, discardAt, noticeOf });
  if (hasRecipientExtras) list.push(extras);
  return JSON.stringify(list);
}

/**
 * Subject and Message-ID as they stand in the JSON, escapes and all, without taking it apart: searches ask for them of every entry. Neither
 * protocol nor route, which are in front of them, has a comma or a quotation mark in it.
 */
export function headerTexts({ envelope }: Pick<QueuedEntry, 'envelope'>): readonly string[] {
  const subject = envelope.indexOf(',', envelope.indexOf(',') + 1) + 1;
  const behind = endOfText(envelope, subject);
  const texts = [envelope.slice(subject + 1, behind)];
  if (envelope[behind + 2] === '"') texts.push(envelope.slice(behind + 3, endOfText(envelope, behind + 2)));
  return texts;
}

/** The index of the quotation mark that ends the text whose own is at that index. */
function endOfText(json: string, start: number): number {
  for (let at = json.indexOf('"', start + 1); ; at = json.indexOf('"', at + 1)) {
    if (at < 0) return json.length;
    let escapes = 0;
    while (json[at - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return at;
  }
}

/** The envelope as it was accepted. */
export function decodeEnvelope(entry: QueuedEntry): NewEntry {
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
