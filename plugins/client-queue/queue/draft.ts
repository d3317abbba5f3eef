import type { Notice } from '../../../core/contracts/queue-entry.js';
import type { Change } from './change.js';
import { isOpen, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

/** A change under construction. */
export type ChangeDraft = { -readonly [Field in keyof Change]: Change[Field] };

export function draftOf(entry: QueuedEntry): ChangeDraft {
  return { uid: entry.uid, revision: entry.revision + 1 };
}

/** Adds notices to the pending ones; ids are never reused. */
export function addNotices(entry: QueuedEntry, draft: ChangeDraft, notices: readonly Omit<Notice, 'id'>[]): void {
  if (notices.length === 0) return;
  const pending =
    draft.notices ?? [...entry.details.notices].map((notice) => ({ ...notice, recipients: [...notice.recipients] }));
  let count = draft.noticeCount ?? entry.details.noticeCount;
  draft.notices = [
    ...pending,
    ...notices.map((notice) => {
      count += 1;
      return { ...notice, recipients: [...notice.recipients], id: String(count) };
    }),
  ];
  draft.noticeCount = count;
}

/** The states of all recipients after the change. */
export function statesBehind(entry: QueuedEntry, draft: ChangeDraft): readonly Pick<RecipientRecord, 'state'>[] {
  const changed = new Map((draft.recipients ?? []).map(({ index, state }) => [index, state]));
  return entry.recipients.map(({ index, state }) => ({ state: changed.get(index) ?? state }));
}

/** Records the end of an entry without open recipients. */
export function finish(entry: QueuedEntry, draft: ChangeDraft, now: number): void {
  const states = statesBehind(entry, draft);
  if (!states.some(isOpen)) draft.finishedAt = now;
  if (entry.hold !== null && draft.hold === undefined && !states.some(({ state }) => state === 'held'))
    draft.hold = null;
}
