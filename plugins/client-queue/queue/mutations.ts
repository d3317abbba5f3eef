import { TimeSlice } from '../../../core/concurrency.js';
import type { Mutation, MutationPreview, MutationResult, MutationRun } from '../../../core/contracts/relay-queue.js';
import type { EntryChange } from './change.js';
import { summaryOf } from './entry-list.js';
import { isOpen, type QueuedEntry, type RecipientTest } from './queued-entry.js';
import type { Ledger } from './ledger.js';
import { type Mutated, mutateEntry } from './mutation.js';

type Result = MutationResult['results'][number];

/** Entries per batch, or fewer when they have many recipients, so that other work is not blocked. */
const together = 250;
const recipientsTogether = 2500;

interface MutationOrder {
  readonly mutation: Mutation;
  readonly now: number;
  readonly chooses: RecipientTest | undefined;
  readonly run?: MutationRun | undefined;
}

/**
 * Changes these entries, in order. @throws Problem `storage-full`: then each entry has either its old or its new state
 */
export async function mutateAll(
  ledger: Ledger,
  uids: readonly string[],
  { mutation, now, chooses, run }: MutationOrder,
): Promise<MutationResult> {
  const slice = new TimeSlice();
  const results: Result[] = [];
  const writes: Promise<void>[] = [];
  const reach = new Reach();
  const newlyHeld: Record<string, readonly number[]> = {};
  let changed = 0;
  for (const some of groupsOf(uids, ledger)) {
    if (run?.signal.aborted === true) break;
    ledger.refuseWhileStalled();
    const changes = function* (): Generator<EntryChange> {
      for (const uid of some) {
        const entry = ledger.find(uid);
        if (entry === undefined) {
          results.push({ uid, outcome: 'notFound', detail: null });
          continue;
        }
        const mutated = mutateEntry(entry, mutation, now, chooses);
        const { outcome, detail, change } = mutated;
        results.push({ uid, outcome, detail });
        reach.add(entry, mutated);
        if (mutation.operation === 'hold') noteHeld(uid, mutated, newlyHeld);
        if (change === undefined) continue;
        changed += 1;
        yield change;
      }
    };
    const written = ledger.commit(changes());
    writes.push(written);
    if (run !== undefined) {
      await written;
      run.progress({ ...reach.counts, total: uids.length, done: results.length });
    }
    await slice.yieldIfDue();
  }
  for (const written of await Promise.allSettled(writes)) if (written.status === 'rejected') throw written.reason;
  return {
    requested: uids.length,
    changed,
    results,
    ...reach.counts,
    ...(mutation.operation === 'hold' && { newlyHeld }),
  };
}

/** Called before the change is applied. */
export function noteHeld(uid: string, { recipients }: Mutated, held: Record<string, readonly number[]>): void {
  const indexes = recipients.filter(({ state }) => state !== 'held').map(({ index }) => index);
  if (indexes.length > 0) held[uid] = indexes;
}

function* groupsOf(uids: readonly string[], ledger: Ledger): Generator<readonly string[]> {
  let some: string[] = [];
  let recipients = 0;
  for (const uid of uids) {
    some.push(uid);
    recipients += ledger.find(uid)?.recipients.length ?? 0;
    if (some.length < together && recipients < recipientsTogether) continue;
    yield some;
    some = [];
    recipients = 0;
  }
  if (some.length > 0) yield some;
}

const maxSample = 10;

/** The result of `mutateAll`, without writing anything. */
export async function previewAll(
  ledger: Ledger,
  uids: readonly string[],
  { mutation, now, chooses }: MutationOrder,
): Promise<MutationPreview> {
  const slice = new TimeSlice();
  const reach = new Reach();
  const sample: MutationPreview['sample'][number][] = [];
  for (const uid of uids) {
    const entry = ledger.find(uid);
    if (entry !== undefined) {
      const mutated = mutateEntry(entry, mutation, now, chooses);
      reach.add(entry, mutated);
      if (mutated.recipients.length > 0 && sample.length < maxSample)
        sample.push({ entry: summaryOf(entry), addresses: mutated.recipients.map(({ address }) => address) });
    }
    const pause = slice.yieldIfDue();
    if (pause !== undefined) await pause;
  }
  return { ...reach.counts, sample };
}

export class Reach {
  readonly counts = { recipients: 0, messages: 0, otherRecipients: 0 };

  /** To be called before the change is applied. */
  add(entry: QueuedEntry, { recipients }: Mutated): void {
    if (recipients.length === 0) return;
    this.counts.recipients += recipients.length;
    this.counts.messages += 1;
    this.counts.otherRecipients += entry.recipients.filter(isOpen).length - recipients.length;
  }

  merge({ counts: { recipients, messages, otherRecipients } }: Reach): void {
    this.counts.recipients += recipients;
    this.counts.messages += messages;
    this.counts.otherRecipients += otherRecipients;
  }
}
