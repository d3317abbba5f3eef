import { z } from 'zod';
import {
  entryStates,
  type Attempt,
  type Entry,
  type EntrySummary,
  type QueuedRecipient,
  type RecordedReply,
} from '../../../core/contracts/queue-entry.js';
import type { QueueStatistics } from '../../../core/contracts/relay-queue.js';
import type { Sites } from '../delivery/sites.js';

/** Entries in responses: times are ISO 8601. */

const time = z.string().describe('ISO 8601');
const Reply = z
  .object({ code: z.int(), status: z.string(), text: z.string(), host: z.string().nullable(), at: time })
  .nullable();
const Recipient = z.object({
  address: z.string(),
  state: z.enum(entryStates),
  attempts: z.int(),
  destination: z.string(),
  lastReply: Reply,
  nextAttempt: time.nullable(),
});

const summary = {
  uid: z.string(),
  state: z.enum(entryStates),
  sender: z.string().describe('Empty for the null reverse-path'),
  recipients: z.array(Recipient),
  route: z.string().nullable(),
  protocol: z.enum(['smtp', 'lmtp']),
  size: z.int().describe('Bytes'),
  subject: z.string(),
  internetMessageId: z.string().nullable(),
  queuedAt: time,
  lastAttempt: time.nullable(),
  nextAttempt: time.nullable(),
  expiresAt: time,
  attempts: z.int(),
  lastReply: Reply,
  hold: z.string().nullable().describe('Why it is held'),
};
export const EntrySummaryAnswer = z.object(summary);
export const EntryAnswer = z.object({
  ...summary,
  history: z.array(
    z.object({
      at: time,
      ms: z.int(),
      destination: z.string(),
      host: z.string().nullable(),
      tls: z.string().nullable(),
      recipients: z.array(z.string()),
      outcome: z.enum(['delivered', 'partial', 'deferred', 'failed', 'lost']),
      reply: Reply,
      possibleDuplicate: z.boolean(),
      manual: z.boolean(),
    }),
  ),
  source: z.object({ listener: z.string(), user: z.string().nullable(), remoteAddress: z.string() }),
  noticeOf: z.string().nullable().describe('This is a notice about that entry'),
  pendingOperation: z.string().nullable(),
  discardAt: time
    .nullable()
    .describe('When it is discarded if nobody sees to it: mail that can be neither delivered nor returned'),
  hasMessage: z.boolean(),
});

export const isoTime = (at: number): string => new Date(Math.min(at, 8.64e15)).toISOString();
const isoOrNull = (at: number | null): string | null => (at === null ? null : isoTime(at));

export function replyAnswer(reply: RecordedReply | null): z.output<typeof Reply> {
  if (reply === null) return null;
  const { code, status, text, host, at } = reply;
  return { code, status, text, host, at: isoTime(at) };
}

function recipientAnswer({
  address,
  state,
  attempts,
  destination,
  lastReply,
  nextAttempt,
}: QueuedRecipient): z.output<typeof Recipient> {
  return {
    address,
    state,
    attempts,
    destination,
    lastReply: replyAnswer(lastReply),
    nextAttempt: isoOrNull(nextAttempt),
  };
}

export function summaryAnswer(entry: EntrySummary): z.output<typeof EntrySummaryAnswer> {
  const { uid, state, route, protocol, size, subject, internetMessageId, attempts, hold } = entry;
  return {
    uid,
    state,
    sender: entry.sender ?? '',
    recipients: entry.recipients.map(recipientAnswer),
    route,
    protocol,
    size,
    subject,
    internetMessageId,
    queuedAt: isoTime(entry.queuedAt),
    lastAttempt: isoOrNull(entry.lastAttempt),
    nextAttempt: isoOrNull(entry.nextAttempt),
    expiresAt: isoTime(entry.expiresAt),
    attempts,
    lastReply: replyAnswer(entry.lastReply),
    hold,
  };
}

function attemptAnswer(attempt: Attempt) {
  const { at, reply, possibleDuplicate = false, manual = false, ms, ...rest } = attempt;
  return { ...rest, ms: Math.round(ms), at: isoTime(at), reply: replyAnswer(reply), possibleDuplicate, manual };
}

export function entryAnswer(entry: Entry): z.output<typeof EntryAnswer> {
  return {
    ...summaryAnswer(entry),
    history: entry.history.map((attempt) => ({ ...attemptAnswer(attempt), recipients: [...attempt.recipients] })),
    source: entry.accepted.source,
    noticeOf: entry.accepted.noticeOf ?? null,
    pendingOperation: entry.pendingOperation,
    discardAt: isoOrNull(entry.discardAt),
    hasMessage: entry.hasMessage,
  };
}

/** Maximum destinations per response: thousands would take megabytes. */
export const maxDestinations = { page: 12, list: 100, statistics: 1000 };

export const StatisticsAnswer = z.object({
  at: time.describe('When it was counted'),
  byState: z.record(z.enum(entryStates), z.int()).describe('Entries'),
  byDestination: z
    .array(
      z.object({
        destination: z.string(),
        site: z.string().nullable().describe('Shared with all that have the same servers; null while it is not known'),
        total: z.int().describe('Open recipients'),
        ages: z.array(z.int()).describe('By ageLimits, the last one for older ones'),
        oldest: time,
        active: z.int(),
        lastReply: Reply,
      }),
    )
    .describe('Those with the most open recipients: at most 100 in the list, 1,000 in the statistics'),
  destinationCount: z.int().describe('Destinations with open recipients, listed or not'),
  ageLimits: z.array(z.int()).describe('Minutes'),
  bySender: z
    .array(
      z.object({
        sender: z.string().describe('In lower case; empty for the null reverse-path'),
        count: z.int().describe('Open recipients'),
        messages: z.int(),
      }),
    )
    .describe('Those with the most open recipients, as many as of destinations'),
  senderCount: z.int(),
  byReason: z.array(z.object({ reason: z.string(), count: z.int(), example: Reply })),
  open: z.int(),
  bytes: z.int(),
  oldest: time.nullable(),
  quarantined: z.int(),
  damaged: z.int().describe('Entries that are held because of damage'),
});

export function statisticsAnswer(
  statistics: QueueStatistics,
  sites: Pick<Sites, 'peek'>,
  limit: number,
): z.output<typeof StatisticsAnswer> {
  const { at, byState, byDestination, ageLimits, byReason, open, bytes, oldest, quarantined } = statistics;
  const { damaged = 0, bySender } = statistics;
  return {
    at: isoTime(at),
    byState,
    byDestination: byDestination.slice(0, limit).map(({ oldest: since, lastReply, ...row }) => ({
      destination: row.destination,
      site: sites.peek(row.destination) ?? null,
      total: row.total,
      ages: [...row.ages],
      oldest: isoTime(since),
      active: row.active,
      lastReply: replyAnswer(lastReply),
    })),
    destinationCount: statistics.destinationCount ?? byDestination.length,
    ageLimits: [...ageLimits],
    bySender: bySender
      .slice(0, limit)
      .map(({ sender, count, messages }) => ({ sender: sender ?? '', count, messages })),
    senderCount: statistics.senderCount ?? bySender.length,
    byReason: byReason.map(({ reason, count, example }) => ({ reason, count, example: replyAnswer(example) })),
    open,
    bytes,
    oldest: isoOrNull(oldest),
    quarantined,
    damaged,
  };
}
