import type { Mutation, MutationResult } from '../../../core/contracts/queue-list.js';
import type { Change, RecipientChange } from './change.js';
import { addNotices, draftOf, finish, statesBehind, type Draft } from './draft.js';
import {
  isOpen,
  isWaiting,
  waitingState,
  type PendingOperation,
  type QueuedEntry,
  type RecipientRecord,
} from './queued-entry.js';

type Outcome = Omit<MutationResult['results'][number], 'uid'>;

export interface Mutated extends Outcome {
  /** Undefined when there is nothing to change. */
  readonly change: Change | undefined;
}

const nothing = (detail: string): Mutated => ({ outcome: 'done', detail, change: undefined });

const behindAttempt = {
  delete: 'It is deleted behind the attempt that is under way.',
  bounce: 'It is returned behind the attempt that is under way.',
  hold: 'It is held behind the attempt that is under way.',
} as const;

/** What a mutation makes of an entry. Doing it again changes nothing more. */
export function mutateEntry(entry: QueuedEntry, mutation: Mutation, now: number): Mutated {
  if (!entry.isOpen) return nothing('It is finished.');
  if (mutation.operation === 'retry') return retry(entry, mutation.at ?? now);
  if (mutation.operation === 'release') return release(entry, now);
  return endOrHold(entry, mutation, now);
}

function retry(entry: QueuedEntry, at: number): Mutated {
  const waiting = entry.recipients.filter(isWaiting);
  const active = entry.recipients.some(({ state }) => state === 'active');
  if (waiting.length === 0) {
    return active
      ? { outcome: 'active', detail: 'An attempt is under way.', change: undefined }
      : nothing('It is held; release it to have it sent.');
  }
  const changes = waiting.map(({ index, state }) => ({ index, state, due: at, manual: true }));
  return {
    outcome: active ? 'active' : 'done',
    detail: active ? 'An attempt for other recipients is under way.' : null,
    change: { ...draftOf(entry), recipients: changes },
  };
}

function release(entry: QueuedEntry, now: number): Mutated {
  const held = entry.recipients.filter(({ state }) => state === 'held');
  const cancels = entry.details.pending?.operation === 'hold';
  if (held.length === 0 && !cancels) return nothing('It is not held.');
  const draft = draftOf(entry);
  draft.recipients = held.map((recipient) => released(recipient, now));
  draft.hold = null;
  draft.holdUntil = null;
  if (entry.details.discardAt !== null) draft.discardAt = null;
  draft.crashes = 0;
  if (cancels) draft.pending = null;
  return { outcome: 'done', detail: null, change: draft };
}

export function released(recipient: RecipientRecord, now: number): RecipientChange {
  return { index: recipient.index, state: waitingState(recipient), due: now, manual: true };
}

/** Who is in flight is seen to behind his attempt; the others at once, for they must not be tried meanwhile. */
function endOrHold(entry: QueuedEntry, operation: PendingOperation, now: number): Mutated {
  const draft = draftOf(entry);
  const isActive = entry.recipients.some(({ state }) => state === 'active');
  const detail = isActive ? behindAttempt[operation.operation] : null;
  if (isActive && entry.details.pending?.operation === operation.operation)
    return { outcome: 'active', detail, change: undefined };
  if (isActive) draft.pending = operation;
  perform(entry, draft, operation, now);
  finish(entry, draft, now);
  return { outcome: isActive ? 'active' : 'done', detail, change: draft };
}

/** What an operator asked for while the entry was in flight, for those who are not in flight any more. */
export function performPending(entry: QueuedEntry, draft: Draft, now: number): void {
  const { pending } = entry.details;
  if (pending === null) return;
  if (!statesBehind(entry, draft).some(({ state }) => state === 'active')) draft.pending = null;
  perform(entry, draft, pending, now);
}

function perform(entry: QueuedEntry, draft: Draft, operation: PendingOperation, now: number): void {
  const states = statesBehind(entry, draft);
  const open = entry.recipients.filter((_, index) => {
    const one = states[index];
    return one !== undefined && isOpen(one) && one.state !== 'active';
  });
  if (open.length === 0) return;
  const before = new Map((draft.recipients ?? []).map((change) => [change.index, change]));
  for (const recipient of open)
    before.set(recipient.index, { ...before.get(recipient.index), ...performed(recipient, operation, now) });
  draft.recipients = [...before.values()];
  if (operation.operation === 'hold') {
    draft.hold = operation.reason ?? 'Held by an operator.';
    draft.holdUntil = operation.until ?? null;
    if (entry.details.discardAt !== null || draft.discardAt !== undefined) draft.discardAt = null;
    return;
  }
  draft.hold = null;
  if (operation.operation === 'delete') return;
  const { reason } = operation;
  const recipients = open.map(({ address }) => address);
  addNotices(entry, draft, [{ kind: 'failed', recipients, at: now, ...(reason !== undefined && { reason }) }]);
}

function performed(
  { index }: RecipientRecord,
  { operation, reason, status }: PendingOperation,
  at: number,
): RecipientChange {
  if (operation === 'hold') return { index, state: 'held' };
  if (operation === 'delete') return { index, state: 'deleted' };
  const text = reason ?? 'Returned by an operator.';
  return { index, state: 'bounced', reply: { code: 554, status: status ?? '5.0.0', text, host: null, at } };
}
