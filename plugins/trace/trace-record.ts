import { z } from 'zod';

/** Recipients of one record; a message with more has several. */
export const maxRecipients = 50;

const Session = z.object({
  id: z.string(),
  since: z.string(),
  listener: z.string(),
  remote: z.string(),
  hello: z.string().optional(),
  tls: z.string().optional(),
  user: z.string().optional(),
});
const Recipient = z.object({
  address: z.string(),
  /** Delivery target, and the destination there: a mailbox, a domain, a route. */
  target: z.string().optional(),
  destination: z.string().optional(),
  discarded: z.boolean().optional(),
});
const ReplyRecord = z.object({ code: z.number(), status: z.string(), text: z.string(), host: z.string().nullable() });

/** One line of the log of traces. Times are milliseconds since 1970. */
const Record = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('accepted'),
    at: z.number(),
    id: z.string(),
    session: Session,
    messageId: z.string().optional(),
    /** Empty for the null reverse-path. */
    sender: z.string(),
    recipients: z.array(Recipient),
    size: z.number(),
    ms: z.number(),
  }),
  z.object({
    kind: z.literal('rejected'),
    at: z.number(),
    session: Session,
    stage: z.string(),
    sender: z.string().optional(),
    recipient: z.string().optional(),
    reply: ReplyRecord,
  }),
  z.object({
    kind: z.literal('outcome'),
    at: z.number(),
    id: z.string(),
    sender: z.string(),
    recipient: z.string(),
    status: z.string(),
    target: z.string(),
    attempts: z.number(),
    reply: ReplyRecord.nullable(),
    reason: z.string().optional(),
    nextAttemptAt: z.number().nullable(),
  }),
]);
export type TraceRecord = z.output<typeof Record>;
export type SessionRecord = z.output<typeof Session>;

/** Undefined for a line that is no record: cut by a kill, or of a later version. */
export function parseRecord(line: string): TraceRecord | undefined {
  try {
    return Record.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}

const idLength = 20;

/** An id, Message-ID or address as it is searched for: without angle brackets, in lower case. */
export const traceKey = (text: string): string =>
  text
    .trim()
    .replace(/^<(.+)>$/, '$1')
    .toLowerCase();

/** The id of a transaction, of which entries of the queue and notices have longer ones: `<id>-<word>`. */
export const baseId = (id: string): string => id.slice(0, idLength);

/** What a record is found by. */
export function keysOf(record: TraceRecord): readonly string[] {
  // Addresses lead to the acceptance, and its id leads to the outcomes.
  if (record.kind === 'outcome') return [baseId(record.id)];
  const { session } = record;
  if (record.kind === 'rejected')
    return present([session.id, traceKey(record.sender ?? ''), traceKey(record.recipient ?? '')]);
  const { id, messageId = '', sender, recipients } = record;
  const addresses = [sender, ...recipients.map(({ address }) => address)];
  return present([baseId(id), session.id, traceKey(messageId), ...addresses.map(traceKey)]);
}

const present = (keys: readonly string[]): readonly string[] => [...new Set(keys)].filter((key) => key !== '');
