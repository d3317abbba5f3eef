import type { Change } from './change.js';
import { jumpMs } from './clock-watch.js';
import { draftOf } from './draft.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

/** An attempt that seems to be further away than it can be comes at some time within an hour. */
const clampedMs = 3_600_000;

export interface ClockFault {
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
