import type { Mutation, MutationResult } from '../../../core/contracts/relay-queue.js';
import {
  type EntryChange,
  type RecipientChange,
  addNotices,
  type ChangeDraft,
  draftOf,
  finish,
  statesBehind,
} from './change.js';
import {
  isOpen,
  isWaiting,
  type PendingOperation,
  type QueuedEntry,
  type RecipientRecord,
  type RecipientTest,
  waitingState,
} from './queued-entry.js';

type Outcome = Omit<MutationResult['results'][number], 'uid'>;

export interface Mutated extends Outcome {
  /** Undefined when nothing changes. */
  readonly change: EntryChange | undefined;
  /** Recipients that change, now or after the running attempt. */
  readonly recipients: readonly RecipientRecord[];
}

const nothing = (detail: string): Mutated => ({ outcome: 'done', detail, change: undefined, recipients: [] });

const behindAttempt = {
  delete: 'It is deleted behind the attempt that is under way.',
  bounce: 'It is returned behind the attempt that is under way.',
  hold: 'It is held behind the attempt that is under way.',
} as const;

/** The change that a mutation makes to an entry, or to the chosen recipients. Applying it again changes nothing. */
export function mutateEntry(entry: QueuedEntry, mutation: Mutation, now: number, chooses?: RecipientTest): Mutated {
  if (!entry.isOpen) return nothing('It is finished.');
  const chosen = entry.recipients.filter((one) => isOpen(one) && (chooses?.(one) ?? true));
  if (chosen.length === 0) return nothing('No open recipient matches.');
  if (mutation.operation === 'retry') return retry(entry, chosen, mutation.at ?? now);
  if (mutation.operation === 'release') return release(entry, chosen, now);
  const isWhole = chooses === undefined || chosen.length === entry.recipients.filter(isOpen).length;
  return endOrHold(entry, isWhole ? mutation : { ...mutation, recipients: chosen.map(({ index }) => index) }, now);
}

function retry(entry: QueuedEntry, chosen: readonly RecipientRecord[], at: number): Mutated {
  const waiting = chosen.filter(isWaiting);
  const active = chosen.some(({ state }) => state === 'active');
  if (waiting.length === 0)
    return nothing(active ? 'It is being sent now.' : 'It is held; release it to have it sent.');
  const changes = waiting.map(({ index, state }) => ({ index, state, due: at, manual: true }));
  return {
    outcome: 'done',
    detail: active ? 'An attempt for other recipients is under way.' : null,
    change: { ...draftOf(entry), recipients: changes },
    recipients: waiting,
  };
}

function release(entry: QueuedEntry, chosen: readonly RecipientRecord[], now: number): Mutated {
  const held = chosen.filter(({ state }) => state === 'held');
  const { pending, discardAt } = entry.details;
  const cancelled =
    pending?.operation === 'hold' ? chosen.filter((one) => one.state === 'active' && concerns(pending, one)) : [];
  if (held.length === 0 && cancelled.length === 0) return nothing('It is not held.');
  const draft = draftOf(entry);
  draft.recipients = held.map((recipient) => released(recipient, now));
  draft.crashes = 0;
  if (pending !== null && cancelled.length > 0) draft.pending = without(entry, pending, cancelled);
  if (!statesBehind(entry, draft).some(({ state }) => state === 'held')) {
    draft.hold = null;
    draft.holdUntil = null;
    if (discardAt !== null) draft.discardAt = null;
  }
  return { outcome: 'done', detail: null, change: draft, recipients: [...held, ...cancelled] };
}

const concerns = ({ recipients }: PendingOperation, { index }: RecipientRecord): boolean =>
  recipients === undefined || recipients.includes(index);

/** The operation for its other recipients that are in flight; null when there are none. */
function without(
  entry: QueuedEntry,
  pending: PendingOperation,
  cancelled: readonly RecipientRecord[],
): NonNullable<EntryChange['pending']> | null {
  const left = entry.recipients.filter((one) => one.state === 'active' && concerns(pending, one));
  const recipients = left.filter((one) => !cancelled.includes(one)).map(({ index }) => index);
  return recipients.length === 0 ? null : { ...pending, recipients };
}

export function released(recipient: RecipientRecord, now: number): RecipientChange {
  return { index: recipient.index, state: waitingState(recipient), due: now, manual: true };
}

/** Recipients in flight change after their attempt; the others at once, since they must not be tried meanwhile. */
function endOrHold(entry: QueuedEntry, operation: PendingOperation, now: number): Mutated {
  const draft = draftOf(entry);
  const { pending } = entry.details;
  const chosen = entry.recipients.filter((one) => isOpen(one) && concerns(operation, one));
  const active = chosen.filter(({ state }) => state === 'active');
  const isActive = active.length > 0;
  const isSame = pending?.operation === operation.operation;
  const isPending = isSame && active.every((one) => concerns(pending, one));
  let detail: string | null = isActive ? behindAttempt[operation.operation] : null;
  if (isActive && isPending && active.length === chosen.length)
    return { outcome: 'active', detail, change: undefined, recipients: [] };
  let recipients = chosen;
  if (isActive && !isPending) {
    const others = entry.recipients.filter((one) => one.state === 'active' && !active.includes(one));
    const claimed = pending === null ? [] : others.filter((one) => concerns(pending, one));
    if (claimed.length > 0 && !isSame) {
      recipients = chosen.filter((one) => !active.includes(one));
      detail = 'Something else is to be done behind the attempt that is under way. Try again behind it.';
      if (recipients.length === 0) return { outcome: 'active', detail, change: undefined, recipients };
    } else {
      draft.pending = { ...operation, recipients: [...active, ...claimed].map(({ index }) => index) };
    }
  }
  perform(entry, draft, operation, now);
  finish(entry, draft, now);
  return { outcome: isActive ? 'active' : 'done', detail, change: draft, recipients };
}

/** Applies the pending operations to recipients that are no longer in flight. */
export function performPending(entry: QueuedEntry, draft: ChangeDraft, now: number): void {
  const { pending } = entry.details;
  if (pending === null) return;
  const states = statesBehind(entry, draft);
  if (!entry.recipients.some((one, at) => states[at]?.state === 'active' && concerns(pending, one)))
    draft.pending = null;
  perform(entry, draft, pending, now);
}

function perform(entry: QueuedEntry, draft: ChangeDraft, operation: PendingOperation, now: number): void {
  const states = statesBehind(entry, draft);
  const open = entry.recipients
    .filter((_, index) => {
      const one = states[index];
      return one !== undefined && isOpen(one) && one.state !== 'active';
    })
    .filter((one) => concerns(operation, one));
  if (open.length === 0) return;
  const before = new Map((draft.recipients ?? []).map((change) => [change.index, change]));
  for (const recipient of open)
    before.set(recipient.index, { ...before.get(recipient.index), ...performed(recipient, operation, now) });
  draft.recipients = [...before.values()];
  if (operation.operation === 'hold') {
    draft.hold = operation.reason ?? 'Held by an operator.';
    draft.holdUntil = holdUntil(entry, operation, open);
    if (entry.details.discardAt !== null || draft.discardAt !== undefined) draft.discardAt = null;
    return;
  }
  if (operation.operation === 'delete') return;
  const { reason } = operation;
  const recipients = open.map(({ address }) => address);
  addNotices(entry, draft, [{ kind: 'failed', recipients, at: now, ...(reason !== undefined && { reason }) }]);
}

/** An entry has one end of its hold: the later one wins, and no end is the latest. */
function holdUntil(entry: QueuedEntry, { until }: PendingOperation, now: readonly RecipientRecord[]): number | null {
  if (!entry.recipients.some((one) => one.state === 'held' && !now.includes(one))) return until ?? null;
  const before = entry.details.holdUntil;
  return until === undefined || before === null ? null : Math.max(until, before);
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
