import { z } from 'zod';
import { entryStates } from '../../../core/contracts/queue-entry.js';

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

export const StoredRecipientExtras = z.object(recipientExtras);

const extras = {
  ret: z.exactOptional(z.enum(['full', 'hdrs'])),
  envelopeId: z.exactOptional(z.string()),
  hold: z.exactOptional(z.string()),
  discardAt: z.exactOptional(z.number()),
  noticeOf: z.exactOptional(z.string()),
};

export const StoredExtras = z.object(extras);

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
