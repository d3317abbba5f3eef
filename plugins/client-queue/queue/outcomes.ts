import type { EntryState } from '../../../core/contracts/queue-entry.js';
import type { QueueOutcome } from '../../../core/contracts/queue-outcome.js';
import type { Change, RecipientChange } from './change.js';
import type { QueuedEntry } from './queued-entry.js';

/** What a change means for those of the recipients whose fate it is; to be asked before it is applied. */
export function outcomesOf(entry: QueuedEntry, change: Change, now: number): readonly QueueOutcome[] {
  return (change.recipients ?? []).flatMap((given): readonly QueueOutcome[] => {
    const recipient = entry.recipients[given.index];
    const state = recipient && fateOf(recipient.state, given);
    if (recipient === undefined || state === undefined) return [];
    const { uid, sender } = entry;
    const { address, destination } = recipient;
    return [
      {
        uid,
        sender,
        address,
        destination,
        state,
        reply: given.reply ?? (state === 'expired' ? recipient.reply : null),
        hold: state === 'held' ? (change.hold ?? entry.hold) : null,
        attempts: given.attempts ?? recipient.attempts,
        nextAttempt: state === 'deferred' ? (given.due ?? recipient.due) : null,
        at: now,
        accepted: () => entry.accepted,
      },
    ];
  });
}

/** To wait on is none, unless there was an attempt; nor is a state that he was in before. */
function fateOf(before: EntryState, { state, attempts }: RecipientChange): QueueOutcome['state'] | undefined {
  if (state === 'queued' || state === 'active') return undefined;
  if (state === 'deferred') return attempts === undefined ? undefined : state;
  return state === before ? undefined : state;
}

type Listener = (outcome: QueueOutcome) => void;

/** Those who want to hear of outcomes. */
export class OutcomeListeners {
  readonly #listeners = new Set<Listener>();

  get some(): boolean {
    return this.#listeners.size > 0;
  }

  add(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(outcomes: readonly QueueOutcome[]): void {
    for (const outcome of outcomes) for (const listener of this.#listeners) listener(outcome);
  }
}
