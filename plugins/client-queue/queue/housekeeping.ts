import { join } from 'node:path';
import { TimeSlice } from '../../../core/concurrency.js';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import type { Log } from '../../../core/log/log.js';
import { deadLetterReason } from '../delivery/attempts.js';
import { type Bodies, bodySuffix, envelopeLineOf, envelopeSuffix, shards } from './bodies.js';
import { jumpMs } from './clock-watch.js';
import { addNotices, type Draft, draftOf, finish, statesBehind } from './draft.js';
import { expiredReply } from './expired-reply.js';
import type { Change, RecipientChange } from './change.js';
import { released } from './mutation.js';
import type { Quarantine } from './quarantine.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

interface Moment {
  readonly now: number;
  /** The clock has gone steadily for so long that its word alone ends an entry. */
  readonly steady: boolean;
  /** It was seen to jump a short while ago: its word ends none. */
  readonly jumped: boolean;
  /** Mail that nobody can be told of is kept for an operator for so long; 0 for ever. Milliseconds. */
  readonly keepDeadLetterMs: number;
  /** By how many milliseconds the clock was ahead when the entry was accepted. */
  readonly aheadOf: (entry: QueuedEntry) => number;
}

/** What time does to an entry; undefined for nothing. */
export function ageEntry(entry: QueuedEntry, moment: Moment): Change | undefined {
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
    // Whoever has no address is not told of a delay (RFC 3464 §2).
    const recipients = delayed.map(({ address }) => address);
    if (entry.sender !== null) addNotices(entry, draft, [{ kind: 'delayed', recipients, at: now }]);
  }
  const isUnchanged = !lapsed && expired.length === 0 && draft.warnAt === undefined && countsFrom === undefined;
  if (isUnchanged) return undefined;
  finish(entry, draft, now);
  return draft;
}

/** What is to be noted, so that a restart does not begin its time again; undefined for nothing new. */
function countsFromBehind(entry: QueuedEntry, ahead: number, { jumped }: Moment): number | null | undefined {
  const { countsFrom } = entry.details;
  if (jumped) return countsFrom === null ? undefined : null;
  if (ahead === 0 || countsFrom === entry.queuedAt - ahead) return undefined;
  return entry.queuedAt - ahead;
}

/** What nobody can be told of is held for an operator. */
function expire(
  entry: QueuedEntry,
  draft: Draft,
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

/** Mail that nobody can be told of was held for as long as it is to be, and no operator has seen to it. */
function isOverdue(entry: QueuedEntry, { now, steady }: Moment): boolean {
  const { discardAt } = entry.details;
  return steady && discardAt !== null && discardAt <= now && entry.recipients.every((one) => !isWaiting(one));
}

function discarded(entry: QueuedEntry, now: number): Change | undefined {
  const held = entry.recipients.filter(({ state }) => state === 'held');
  if (held.length === 0) return undefined;
  const draft = draftOf(entry);
  draft.recipients = held.map(({ index }) => ({ index, state: 'expired' }));
  draft.discardAt = null;
  finish(entry, draft, now);
  return draft;
}

/**
 * Age alone does not end a recipient: the clock may have jumped. He has been tried when his time was over already, or was tried
 * before and the clock goes steadily. Whom an operator wants to have tried is tried first.
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
  /** Messages that are being accepted at this moment. */
  readonly isPreparing: (uid: string) => boolean;
  /** Nothing of snapshot and journal was lost. */
  readonly whole: boolean;
  /** What is older has been looked at before. */
  readonly sweptAt: number;
}

interface Swept {
  /** Entries whose message is not what it should be. */
  readonly complaints: readonly { readonly entry: QueuedEntry; readonly complaint: 'missing' | 'damaged' }[];
}

const unaccepted =
  'No entry of the queue belongs to it: the server ended before it accepted the message, or the journal has lost the entry.';
const unknown = 'No entry of the queue belongs to it: the journal of the queue was damaged or changed.';
const foreign = 'Unknown file in the queue folder.';
const damaged = 'The message is not of the size that its entry says.';

/** Looks at every message once: what has no entry, and what an entry lacks. */
export async function sweep(input: SweepInput, open: Iterable<QueuedEntry>): Promise<Swept> {
  const slice = new TimeSlice();
  for (const shard of shards) {
    const folder = join(input.folder, shard);
    const names = await input.files.readdir(folder);
    const isEnvelope = (name: string): boolean => name.endsWith(envelopeSuffix);
    // An envelope goes with its message, if there is one.
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
    await quarantine.move(path, foreign);
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

/** Of a message that has gone, or was set aside with what stood in it. */
async function lookAtEnvelope({ bodies, ...input }: SweepInput, folder: string, name: string): Promise<void> {
  const uid = name.slice(0, -envelopeSuffix.length);
  const path = join(folder, name);
  if (!belongs(bodies, uid, `${path.slice(0, -envelopeSuffix.length)}${bodySuffix}`)) {
    await input.quarantine.move(path, foreign);
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

/** An attempt that seems to be further away than it can be comes at some time within an hour. */
const clampedMs = 3_600_000;

interface ClockFault {
  readonly now: number;
  /** What the clock said before it went back; absent when nobody has seen it. */
  readonly before?: number;
  readonly maxPauseMs: number;
  /** Below `limit`. */
  readonly random: (limit: number) => number;
}

/** Brings attempts near again that a clock gone wrong has put far away; undefined when there are none. */
export function broughtBack(entry: QueuedEntry, fault: ClockFault): Change | undefined {
  const { now, random } = fault;
  const astray = entry.recipients.filter((one) => isAstray(one, fault));
  if (astray.length === 0) return undefined;
  const recipients = astray.map(({ index, state }) => ({ index, state, due: now + random(clampedMs) }));
  return { ...draftOf(entry), recipients };
}

/** An operator, or who handed it in, may have asked for a time that is far ahead. */
function isAstray(one: RecipientRecord, { now, before = -Infinity, maxPauseMs }: ClockFault): boolean {
  if (!isWaiting(one) || one.due <= now) return false;
  // It was due already.
  if (one.due <= before) return true;
  if (one.manual) return false;
  if (one.attempts > 0) return one.due > now + maxPauseMs;
  const { queuedAt } = one.entry;
  return one.due > now + clampedMs && queuedAt > now + jumpMs && one.due <= queuedAt + maxPauseMs;
}

/**
 * Mail that was accepted while the clock was ahead: it would be kept too long. It counts as accepted when a clock that goes steadily
 * has shown it; one that jumps may have been wrong until then, so that what it has shown is forgotten. What an earlier process has seen
 * counts while the times of the entry are still to come: when they are not, the clock may have been behind then.
 */
export class FutureArrivals {
  #seen = new WeakMap<QueuedEntry, number>();

  forget(): void {
    this.#seen = new WeakMap();
  }

  /** By how many milliseconds the times of the entry are too late, as a clock that goes steadily says. */
  aheadOf(entry: QueuedEntry, now: number): number {
    const seen = this.#seen.get(entry);
    if (seen !== undefined) return entry.queuedAt - seen;
    if (entry.queuedAt <= now + jumpMs) return 0;
    const from = Math.min(entry.details.countsFrom ?? now, now);
    this.#seen.set(entry, from);
    return entry.queuedAt - from;
  }
}
