import { targets } from '../../core/contracts/targets.js';
import type { TracedMessage } from '../../core/contracts/traces.js';
import type { TraceLog } from './trace-log.js';
import { baseId, traceKey, type SessionRecord, type TraceRecord } from './trace-record.js';
import { pluralize } from '../../core/text/format.js';

export type Tone = 'neutral' | 'info' | 'good' | 'warn' | 'bad';

/** One step of a message, or of a refusal. */
export interface Step {
  /** ISO 8601. */
  readonly at: string;
  readonly what: string;
  readonly detail: string;
  readonly tone: Tone;
  /** Page about it. */
  readonly href: string | null;
}

/** What became of one message, or of one that was refused. */
export interface Trace extends TracedMessage {
  readonly steps: readonly Step[];
}

type Accepted = Extract<TraceRecord, { kind: 'accepted' }>;
type Rejected = Extract<TraceRecord, { kind: 'rejected' }>;
type Outcome = Extract<TraceRecord, { kind: 'outcome' }>;

const maxRecords = 1000;
/** Of an entry of the queue or of a notice. */
const longId = /^[0-9a-z]{20}-./;

/**
 * Traces of messages with that id, Message-ID or address, or of that session, newest first.
 *
 * @param before milliseconds since 1970
 */
export async function tracesOf(
  log: TraceLog,
  text: string,
  { before, limit }: { readonly before?: number; readonly limit: number },
): Promise<readonly Trace[]> {
  const plain = traceKey(text);
  const key = longId.test(plain) ? baseId(plain) : plain;
  const found = await log.find(key, { limit: limit * 2, ...(before !== undefined && { before }) });
  const ids = new Set<string>();
  const traces: Trace[] = [];
  for (const record of found) {
    if (traces.length === limit) break;
    if (record.kind === 'rejected') {
      traces.push(refusalTrace(record));
      continue;
    }
    const id = baseId(record.id);
    if (ids.has(id)) continue;
    ids.add(id);
    traces.push(messageTrace(id, await log.find(id, { limit: maxRecords })));
  }
  return traces;
}

/** The newest messages and refusals before a time, newest first, as far as the log gives its newest records. */
export async function latestTraces(
  log: TraceLog,
  { before = Infinity, limit }: { readonly before?: number; readonly limit: number },
): Promise<readonly Trace[]> {
  const records = await log.latest();
  const traces: Trace[] = [];
  for (const record of records) {
    if (traces.length === limit) break;
    if (record.at >= before) continue;
    if (record.kind === 'rejected') traces.push(refusalTrace(record));
    // Of an older message there are only the last outcomes here.
    else if (record.kind === 'accepted' && record.id === baseId(record.id))
      traces.push(
        messageTrace(
          record.id,
          records.filter((one) => one.kind !== 'rejected' && baseId(one.id) === record.id),
        ),
      );
  }
  return traces;
}

function refusalTrace(record: Rejected): Trace {
  const { session, at, stage, sender, recipient, reply } = record;
  return {
    id: null,
    session: session.id,
    messageId: null,
    sender: sender ?? '',
    recipients: recipient === undefined ? [] : [recipient],
    at: iso(at),
    states: ['rejected'],
    steps: [
      ...sessionSteps(session),
      step(at, 'Rejected', `at ${stage}: ${reply.code} ${reply.status} ${reply.text}`, 'bad'),
    ],
  };
}

/** @param records of one id, newest first: of the message, of its entries in the queue, and of notices about it */
function messageTrace(id: string, records: readonly TraceRecord[]): Trace {
  const ordered = records.toReversed();
  const accepted = ordered.filter((one): one is Accepted => one.kind === 'accepted');
  const own = accepted.filter((one) => one.id === id);
  const notices = accepted.filter((one) => one.id !== id);
  const outcomes = ordered.filter((one): one is Outcome => one.kind === 'outcome');
  const [first] = own;
  const last = new Map(own.flatMap(({ recipients }) => recipients.map((one) => [one.address, stateOf(one)])));
  for (const { id: entry, recipient, status } of outcomes) if (baseId(entry) === id) last.set(recipient, status);
  const at = first?.at ?? ordered[0]?.at ?? 0;
  return {
    id,
    session: first?.session.id ?? '',
    messageId: first?.messageId ?? null,
    sender: first?.sender ?? outcomes[0]?.sender ?? '',
    recipients: [...last.keys()],
    at: iso(at),
    states: [...new Set(last.values())],
    steps: [
      ...(first === undefined ? [] : [...sessionSteps(first.session), acceptedStep(first)]),
      ...own.flatMap(recipientSteps),
      ...[...outcomes.map(outcomeStep), ...notices.map(noticeStep)].toSorted((a, b) => (a.at < b.at ? -1 : 1)),
    ],
  };
}

/** Targets that put mail into the queue, under the id of the message and a suffix. */
const queued: ReadonlyMap<string, { readonly state: string; readonly suffix: string; readonly tone: Tone }> = new Map([
  [targets.relay, { state: 'queued', suffix: '', tone: 'info' }],
  [targets.queue, { state: 'queued', suffix: '-queue', tone: 'info' }],
  [targets.retry, { state: 'queued', suffix: '-retry', tone: 'info' }],
  [targets.bounce, { state: 'bounced', suffix: '-bounce', tone: 'bad' }],
  [targets.hold, { state: 'held', suffix: '-hold', tone: 'warn' }],
]);

const stateOf = ({ target, discarded }: Accepted['recipients'][number]): string => {
  if (discarded === true) return 'discarded';
  return queued.get(target ?? '')?.state ?? 'delivered';
};

function sessionSteps({ since, listener, remote, hello, tls, user }: SessionRecord): readonly Step[] {
  const at = Date.parse(since);
  const via = hello === undefined ? '' : `, greeting as ${hello}`;
  return [
    step(at, 'Connected', `${remote || 'this server'} to listener ${listener}${via}`),
    ...(tls === undefined ? [] : [step(at, 'Encrypted', tls)]),
    ...(user === undefined ? [] : [step(at, 'Signed in', user)]),
  ];
}

function acceptedStep({ at, sender, size, ms, messageId }: Accepted): Step {
  const from = `from <${sender}>${messageId === undefined ? '' : `, ${messageId}`}`;
  return step(at, 'Accepted', `${from}: ${pluralize(size, 'byte')}, durable after ${ms} ms`, 'good');
}

function recipientSteps({ at, id, recipients }: Accepted): readonly Step[] {
  return recipients.map((one) => {
    const { address, target = '', destination = '' } = one;
    if (one.discarded === true) return step(at, 'Discarded', `${address}: accepted and not stored`, 'warn');
    if (target === targets.mailbox)
      return step(at, 'Delivered', `${address} to the mailbox ${destination}`, 'good', mailboxHref(destination));
    const entry = queued.get(target);
    if (entry !== undefined) {
      const detail = destination === '' ? address : `${address} for ${destination}`;
      return step(at, words[entry.state] ?? entry.state, detail, entry.tone, queueHref(id, target));
    }
    return step(at, 'Delivered', `${address} to ${target || 'no target'} ${destination}`, 'good');
  });
}

const tones: Readonly<Record<string, Tone>> = {
  delivered: 'good',
  deferred: 'warn',
  held: 'warn',
  bounced: 'bad',
  expired: 'bad',
};
const words: Readonly<Record<string, string>> = {
  delivered: 'Delivered',
  deferred: 'Deferred',
  held: 'Held',
  bounced: 'Bounced',
  expired: 'Expired',
  deleted: 'Deleted',
  queued: 'Queued',
};

function outcomeStep({ at, id, recipient, status, target, attempts, reply, reason, nextAttemptAt }: Outcome): Step {
  const said =
    reply === null
      ? ''
      : `: ${reply.host === null ? '' : `${reply.host} said `}${reply.code} ${reply.status} ${reply.text}`;
  const next = nextAttemptAt === null ? '' : `; next attempt ${iso(nextAttemptAt).slice(0, 19)}Z`;
  const why = reason === undefined ? '' : ` (${reason})`;
  const detail = `${recipient} by ${target}, attempt ${attempts}${said}${why}${next}`;
  return step(at, words[status] ?? status, detail, tones[status] ?? 'neutral', `/client/queue/${id}`);
}

function noticeStep({ at, id, recipients }: Accepted): Step {
  const [{ target = '', destination = '' } = {}] = recipients;
  const href = target === targets.mailbox ? mailboxHref(destination) : queueHref(id, target);
  return step(at, 'Notice', `sent to ${recipients.map(({ address }) => address).join(', ')}`, 'info', href);
}

/** Page of the entry in the queue; null for a target that does not queue. */
function queueHref(id: string, target: string): string | null {
  const entry = queued.get(target);
  return entry === undefined ? null : `/client/queue/${id}${entry.suffix}`;
}

function mailboxHref(mailbox: string): string | null {
  const at = mailbox.lastIndexOf('@');
  if (at < 0) return null;
  return `/store/${encodeURIComponent(mailbox.slice(at + 1))}/${encodeURIComponent(mailbox.slice(0, at))}`;
}

const iso = (ms: number): string => new Date(ms).toISOString();
const step = (at: number, what: string, detail: string, tone: Tone = 'neutral', href: string | null = null): Step => ({
  at: iso(at),
  what,
  detail,
  tone,
  href,
});
