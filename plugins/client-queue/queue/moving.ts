import { buffer } from 'node:stream/consumers';
import type { MovedEntries } from '../../../core/contracts/cluster.js';
import type { Attempt } from '../../../core/contracts/queue-entry.js';
import type { OpenedRelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { isProblem } from '../../../core/problem.js';
import { type EntryChange, keptAttempts } from './change.js';
import { decodeEnvelope } from './envelope.js';
import type { PendingOperation, QueuedEntry } from './queued-entry.js';

/** An entry with all that its queue knows of it. */
export interface WholeEntry {
  readonly entry: QueuedEntry;
  /** Oldest first. */
  readonly history: readonly Attempt[];
  /** A server sends it, or is accepting it. */
  readonly isBusy: boolean;
}

/** A whole entry and its message; empty when it is no longer needed. */
export interface MovedEntry extends WholeEntry {
  readonly content: Buffer;
}

/** A queue whose entries may go to another one. */
export interface MovableQueue extends Pick<OpenedRelayQueue, 'open' | 'bytes'> {
  /** Of all entries, finished ones among them. */
  uids(): Promise<readonly string[]>;
  /** Those that are there. */
  wholes(uids: readonly string[]): Promise<readonly WholeEntry[]>;
  /**
   * Takes an entry over as it is: durable when it resolves, and never a part of it. @throws Problem `conflict` when there
   * is another one with this uid
   */
  adopt(moved: MovedEntry): Promise<void>;
  /** Lets others send what was adopted. */
  offer?(): Promise<void>;
  /** Removes entries that are as they were read; durable when it resolves. Returns the uids of the others. */
  drop(wholes: readonly WholeEntry[]): Promise<readonly string[]>;
}

interface MoveOptions {
  readonly dryRun: boolean;
  readonly progress: (done: number, total: number) => void;
}

const together = 64;
/** Messages in memory. */
const bytesTogether = 16 * 1024 * 1024;

const busy = 'It is being sent or accepted at this moment.';
const changed = 'It has changed meanwhile.';
const unreadable = 'Its envelope cannot be read.';
const another = 'The other queue has another message with this id.';

/**
 * Moves all entries. Each is removed when the other queue has it for certain; after a kill, the next run continues:
 * what both queues have is only removed.
 */
export async function moveEntries(from: MovableQueue, to: MovableQueue, options: MoveOptions): Promise<MovedEntries> {
  const uids = await from.uids();
  const sum = { entries: uids.length, moved: 0, there: 0, left: [] as { uid: string; reason: string }[] };
  for (let at = 0; at < uids.length; at += together) {
    options.progress(at, uids.length);
    const wholes = await from.wholes(uids.slice(at, at + together));
    const known = new Map((await to.wholes(wholes.map(({ entry }) => entry.uid))).map((one) => [one.entry.uid, one]));
    for (const some of portions(wholes)) {
      const { moved, there, left } = await movePortion({ from, to, known, dryRun: options.dryRun }, some);
      sum.moved += moved;
      sum.there += there;
      sum.left.push(...left);
    }
  }
  return sum;
}

/** Parts whose messages fit into the memory. */
function* portions(wholes: readonly WholeEntry[]): Generator<readonly WholeEntry[]> {
  let some: WholeEntry[] = [];
  let bytes = 0;
  for (const whole of wholes) {
    if (some.length > 0 && bytes + whole.entry.size > bytesTogether) {
      yield some;
      [some, bytes] = [[], 0];
    }
    some.push(whole);
    bytes += whole.entry.size;
  }
  if (some.length > 0) yield some;
}

interface Move {
  readonly from: MovableQueue;
  readonly to: MovableQueue;
  readonly known: ReadonlyMap<string, WholeEntry>;
  readonly dryRun: boolean;
}

type Fate = 'moved' | 'there' | { readonly reason: string };

async function movePortion(move: Move, wholes: readonly WholeEntry[]): Promise<MovedEntries> {
  const fates = new Map<string, Fate>();
  await Promise.all(wholes.map(async (whole) => fates.set(whole.entry.uid, await moveOne(move, whole))));
  if (!move.dryRun) {
    const done = wholes.filter(({ entry }) => typeof fates.get(entry.uid) === 'string');
    const kept = new Set(await move.from.drop(done));
    // The other queue has an old state of it.
    const back = done.filter(({ entry: { uid } }) => kept.has(uid) && fates.get(uid) === 'moved');
    await move.to.drop(back);
    await move.to.offer?.();
    for (const uid of kept) fates.set(uid, { reason: changed });
  }
  const count = (wanted: Fate): number => [...fates.values()].filter((fate) => fate === wanted).length;
  const left = [...fates].flatMap(([uid, fate]) => (typeof fate === 'string' ? [] : [{ uid, ...fate }]));
  return { entries: wholes.length, moved: count('moved'), there: count('there'), left };
}

async function moveOne({ from, to, known, dryRun }: Move, whole: WholeEntry): Promise<Fate> {
  const { entry, isBusy } = whole;
  if (isBusy) return { reason: busy };
  if (!isReadable(entry)) return { reason: unreadable };
  const other = known.get(entry.uid);
  if (other !== undefined && !isSame(other.entry, entry)) return { reason: another };
  if (other !== undefined && other.entry.revision >= entry.revision) return 'there';
  try {
    const content = entry.isDone ? Buffer.alloc(0) : await contentOf(from, entry.uid);
    if (!dryRun) await to.adopt({ ...whole, content });
    return 'moved';
  } catch (error) {
    if (!isProblem(error) || !['conflict', 'not-found', 'invalid'].includes(error.problem)) throw error;
    return { reason: error.message };
  }
}

const contentOf = async (queue: MovableQueue, uid: string): Promise<Buffer> =>
  (await queue.bytes?.(uid)) ?? buffer(await queue.open(uid));

function isReadable(entry: QueuedEntry): boolean {
  try {
    decodeEnvelope(entry);
    return true;
  } catch {
    return false;
  }
}

const isSame = (one: QueuedEntry, other: QueuedEntry): boolean =>
  one.queuedAt === other.queuedAt && one.envelope === other.envelope && one.size === other.size;

/** What a new entry of the same envelope is changed by, to be like this one. */
export function changesTo({ entry, history }: WholeEntry): readonly EntryChange[] {
  const { uid, revision, expiresAt, warnAt, lastAttempt, hold, finishedAt } = entry;
  const { notices, noticeCount, pending, holdUntil, discardAt, crashes, countsFrom } = entry.details;
  const state: EntryChange = {
    uid,
    revision,
    recipients: entry.recipients.map(({ index, state, attempts, due, manual, reply }) => {
      return { index, state, attempts, due, manual, ...(reply !== null && { reply }) };
    }),
    ...(lastAttempt !== null && { lastAttempt }),
    notices: notices.map((notice) => ({ ...notice, recipients: [...notice.recipients] })),
    noticeCount,
    expiresAt,
    warnAt,
    hold,
    holdUntil,
    discardAt,
    pending: pending === null ? null : pendingOf(pending),
    crashes,
    countsFrom,
    finishedAt,
  };
  const attempts = history.slice(-keptAttempts).map((attempt): EntryChange => {
    return { uid, revision, attempt: { ...attempt, recipients: [...attempt.recipients] } };
  });
  return [state, ...attempts];
}

function pendingOf({ recipients, ...rest }: PendingOperation): NonNullable<EntryChange['pending']> {
  return { ...rest, ...(recipients !== undefined && { recipients: [...recipients] }) };
}
