import { join } from 'node:path';
import { TimeSlice } from '../../../core/concurrency.js';
import type { RecordedReply } from '../../../core/contracts/queue-entry.js';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import type { Log } from '../../../core/log/log.js';
import { pluralize } from '../../../core/text/format.js';
import { type Bodies, bodySuffix, envelopeLineOf, envelopeSuffix, shards } from './bodies.js';
import {
  addNotices,
  type EntryChange,
  type ChangeDraft,
  draftOf,
  finish,
  type RecipientChange,
  statesBehind,
} from './change.js';
import { jumpMs } from './clock-watch.js';
import { deadLetterReason } from './hold-reasons.js';
import { released } from './mutation.js';
import type { Quarantine } from './quarantine.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

interface Moment {
  readonly now: number;
  /** The clock has been steady for long enough that age alone may end an entry. */
  readonly steady: boolean;
  /** The clock jumped a short while ago: age ends no entry. */
  readonly jumped: boolean;
  /** Milliseconds that undeliverable mail without a valid sender is kept for an operator; 0 for ever. */
  readonly keepDeadLetterMs: number;
  /** Milliseconds that the clock was ahead when the entry was accepted. */
  readonly aheadOf: (entry: QueuedEntry) => number;
}

/** The change that time makes to an entry; undefined for none. */
export function ageEntry(entry: QueuedEntry, moment: Moment): EntryChange | undefined {
  const { now } = moment;
  const lapsed = entry.details.holdUntil !== null && entry.details.holdUntil <= now;
  const ahead = moment.aheadOf(entry);
  const own = now + ahead;
  const countsFrom = countsFromBehind(entry, ahead, moment);
  const old = own >= entry.expiresAt;
  const late = entry.warnAt !== null && entry.warnAt <= own;
  if (isOverdue(entry, moment)) return discarded(entry, now);
  if (!lapsed && !old && !late && countsFrom === undefined) return undefined;
  const draft = draftOf(entry);
  if (countsFrom !== undefined) draft.countsFrom = countsFrom;
  if (lapsed) {
    draft.recipients = entry.recipients.filter(({ state }) => state === 'held').map((held) => released(held, now));
    draft.hold = null;
    draft.holdUntil = null;
  }
  const expired = old ? entry.recipients.filter((recipient) => isExpired(recipient, moment)) : [];
  if (expired.length > 0) expire(entry, draft, expired, moment);
  const states = statesBehind(entry, draft);
  const delayed = entry.recipients.filter(
    ({ index, attempts }) => attempts > 0 && isWaiting(states[index] ?? { state: 'deleted' }),
  );
  if (late && delayed.length > 0) {
    draft.warnAt = null;
    // A null sender gets no delay notice (RFC 3464 §2).
    const recipients = delayed.map(({ address }) => address);
    if (entry.sender !== null) addNotices(entry, draft, [{ kind: 'delayed', recipients, at: now }]);
  }
  const isUnchanged = !lapsed && expired.length === 0 && draft.warnAt === undefined && countsFrom === undefined;
  if (isUnchanged) return undefined;
  finish(entry, draft, now);
  return draft;
}

/** The start of the entry's lifetime to record, so that a restart does not begin it again; undefined for no change. */
function countsFromBehind(entry: QueuedEntry, ahead: number, { jumped }: Moment): number | null | undefined {
  const { countsFrom } = entry.details;
  if (jumped) return countsFrom === null ? undefined : null;
  if (ahead === 0 || countsFrom === entry.queuedAt - ahead) return undefined;
  return entry.queuedAt - ahead;
}

/** Mail that cannot be returned is held for an operator. */
function expire(
  entry: QueuedEntry,
  draft: ChangeDraft,
  expired: readonly RecipientRecord[],
  { now, keepDeadLetterMs }: Moment,
): void {
  const { queuedAt, expiresAt, accepted } = entry;
  const hold = entry.sender === null ? deadLetterReason(accepted, Buffer.alloc(0), '') : null;
  const state = hold === null ? 'expired' : 'held';
  const ended = expired.map(({ index, reply }): RecipientChange => {
    return { index, state, reply: expiredReply(reply, { queuedAt, expiresAt, now }) };
  });
  draft.recipients = [...(draft.recipients ?? []), ...ended];
  if (hold === null) {
    addNotices(entry, draft, [{ kind: 'failed', recipients: expired.map(({ address }) => address), at: now }]);
    return;
  }
  draft.hold = hold;
  if (keepDeadLetterMs > 0) draft.discardAt = now + keepDeadLetterMs;
}

/** Undeliverable mail has been held for its full time without an operator's decision. */
function isOverdue(entry: QueuedEntry, { now, steady }: Moment): boolean {
  const { discardAt } = entry.details;
  return steady && discardAt !== null && discardAt <= now && entry.recipients.every((one) => !isWaiting(one));
}

function discarded(entry: QueuedEntry, now: number): EntryChange | undefined {
  const held = entry.recipients.filter(({ state }) => state === 'held');
  if (held.length === 0) return undefined;
  const draft = draftOf(entry);
  draft.recipients = held.map(({ index }) => ({ index, state: 'expired' }));
  draft.discardAt = null;
  finish(entry, draft, now);
  return draft;
}

/**
 * Age alone does not expire a recipient, since the clock may have jumped: it must have been tried after its time was
 * over, or tried at all while the clock is steady. A recipient that an operator wants retried is tried first.
 */
function isExpired(recipient: RecipientRecord, { steady, jumped }: Moment): boolean {
  const { entry, attempts, manual } = recipient;
  if (!isWaiting(recipient) || manual || attempts === 0 || jumped) return false;
  return steady || (entry.lastAttempt ?? 0) >= entry.expiresAt;
}

interface SweepInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly log: Log;
  readonly bodies: Bodies;
  readonly quarantine: Quarantine;
  readonly find: (uid: string) => QueuedEntry | undefined;
  /** Messages that are being accepted now. */
  readonly isPreparing: (uid: string) => boolean;
  /** Snapshot and journal were read without loss. */
  readonly whole: boolean;
  /** Older messages were checked by an earlier sweep. */
  readonly sweptAt: number;
}

interface Swept {
  /** Entries whose message is missing or damaged. */
  readonly complaints: readonly { readonly entry: QueuedEntry; readonly complaint: 'missing' | 'damaged' }[];
}

const unaccepted =
  'No entry of the queue belongs to it: the server ended before it accepted the message, or the journal has lost the entry.';
const unknown = 'No entry of the queue belongs to it: the journal of the queue was damaged or changed.';
const unknownFile = 'Unknown file in the queue folder.';
const damaged = 'The message is not of the size that its entry says.';

/** Checks every message once: files without an entry, and entries without their file. */
export async function sweep(input: SweepInput, open: Iterable<QueuedEntry>): Promise<Swept> {
  const slice = new TimeSlice();
  for (const shard of shards) {
    const folder = join(input.folder, shard);
    const names = await input.files.readdir(folder);
    const isEnvelope = (name: string): boolean => name.endsWith(envelopeSuffix);
    // An envelope file is moved with its message, if there is one.
    for (const name of [...names.filter((one) => !isEnvelope(one)), ...names.filter(isEnvelope)]) {
      await (isEnvelope(name) ? lookAtEnvelope(input, folder, name) : lookAt(input, folder, name));
      await slice.yieldIfDue();
    }
  }
  const complaints: { readonly entry: QueuedEntry; readonly complaint: 'missing' | 'damaged' }[] = [];
  for (const entry of open) {
    const complaint = await input.bodies.complaint(entry);
    if (complaint !== undefined && entry.finishedAt === null) {
      complaints.push({ entry, complaint });
      if (complaint === 'damaged') await input.quarantine.move(input.bodies.path(entry.uid), damaged);
    }
    await slice.yieldIfDue();
  }
  return { complaints };
}

async function lookAt(input: SweepInput, folder: string, name: string): Promise<void> {
  const { files, quarantine, bodies, log } = input;
  const path = join(folder, name);
  const uid = name.endsWith(bodySuffix) ? name.slice(0, -bodySuffix.length) : undefined;
  if (uid === undefined || !belongs(bodies, uid, path)) {
    await quarantine.move(path, unknownFile);
    return;
  }
  if (input.isPreparing(uid)) return;
  const entry = input.find(uid);
  if (entry?.isDone === true) bodies.remove(uid);
  if (entry !== undefined) return;
  try {
    const found = await files.lstat(path);
    const isFresh = input.whole && found.isFile() && found.mtimeMs >= input.sweptAt;
    const line = await envelopeLineOf(files, bodies.envelopePath(uid)).catch(() => undefined);
    await quarantine.move(path, isFresh ? unaccepted : unknown, line?.toString());
  } catch (error) {
    if (!isMissing(error)) log.warn({ err: error, uid }, 'a message of the queue cannot be looked at');
  }
}

/** Removes the envelope of a message that is gone, or was moved to quarantine with it. */
async function lookAtEnvelope({ bodies, ...input }: SweepInput, folder: string, name: string): Promise<void> {
  const uid = name.slice(0, -envelopeSuffix.length);
  const path = join(folder, name);
  if (!belongs(bodies, uid, `${path.slice(0, -envelopeSuffix.length)}${bodySuffix}`)) {
    await input.quarantine.move(path, unknownFile);
    return;
  }
  if (input.isPreparing(uid) || input.find(uid)?.isDone === false) return;
  await bodies.removeEnvelope(uid);
}

function belongs(bodies: Bodies, uid: string, path: string): boolean {
  try {
    return bodies.path(uid) === path;
  } catch {
    return false;
  }
}

/** An attempt that is scheduled too far ahead is moved to a random time within an hour. */
const clampedMs = 3_600_000;

interface ClockFault {
  readonly now: number;
  /** The time before the clock went back; absent when no process saw it. */
  readonly before?: number;
  readonly maxPauseMs: number;
  /** Random integer below `limit`. */
  readonly random: (limit: number) => number;
}

/** Reschedules attempts that a wrong clock put too far ahead; undefined when there are none. */
export function broughtBack(entry: QueuedEntry, fault: ClockFault): EntryChange | undefined {
  const { now, random } = fault;
  const astray = entry.recipients.filter((one) => isAstray(one, fault));
  if (astray.length === 0) return undefined;
  const recipients = astray.map(({ index, state }) => ({ index, state, due: now + random(clampedMs) }));
  return { ...draftOf(entry), recipients };
}

/** The recipient's time is too far ahead, and no operator or sender asked for it. */
function isAstray(one: RecipientRecord, { now, before = -Infinity, maxPauseMs }: ClockFault): boolean {
  if (!isWaiting(one) || one.due <= now) return false;
  // It was already due.
  if (one.due <= before) return true;
  if (one.manual) return false;
  if (one.attempts > 0) return one.due > now + maxPauseMs;
  const { queuedAt } = one.entry;
  return one.due > now + clampedMs && queuedAt > now + jumpMs && one.due <= queuedAt + maxPauseMs;
}

/**
 * Detects mail that was accepted while the clock was ahead, and that would be kept too long. Counts only what a steady
 * clock has shown: a jump clears it, since the clock may have been wrong until then. What an earlier process recorded
 * counts while the times of the entry are in the future; otherwise the clock may have been behind.
 */
export class FutureArrivals {
  #seen = new WeakMap<QueuedEntry, number>();

  forget(): void {
    this.#seen = new WeakMap();
  }

  /** Milliseconds that the times of the entry are ahead, according to a steady clock. */
  aheadOf(entry: QueuedEntry, now: number): number {
    const seen = this.#seen.get(entry);
    if (seen !== undefined) return entry.queuedAt - seen;
    if (entry.queuedAt <= now + jumpMs) return 0;
    const from = Math.min(entry.details.countsFrom ?? now, now);
    this.#seen.set(entry, from);
    return entry.queuedAt - from;
  }
}

/** Status for an exceeded delivery time (RFC 3463 §3.5, X.4.7). */
const expiredStatus = '5.4.7';
const longest = 1000;

/**
 * The final reply for expired mail, with the last reply of a server. This server decided it, so it names no remote
 * host.
 */
export function expiredReply(
  last: RecordedReply | null,
  { queuedAt, expiresAt, now }: { readonly queuedAt: number; readonly expiresAt: number; readonly now: number },
): RecordedReply {
  const tried = `Tried for ${duration(expiresAt - queuedAt)} and not taken`;
  if (last === null) return { code: 451, status: expiredStatus, text: tried, host: null, at: now };
  const text = `${tried}; the last answer was: ${last.code} ${last.status} ${last.text}`;
  return { ...last, status: expiredStatus, host: null, text: text.slice(0, longest) };
}

function duration(ms: number): string {
  const hours = ms / 3_600_000;
  if (hours >= 48) return `${Math.round(hours / 24)} days`;
  if (hours >= 2) return `${Math.round(hours)} hours`;
  return ms >= 120_000 ? `${Math.round(ms / 60_000)} minutes` : pluralize(Math.max(1, Math.round(ms / 1000)), 'second');
}
