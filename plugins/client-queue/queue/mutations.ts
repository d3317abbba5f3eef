import type { Mutation, MutationResult } from '../../../core/contracts/queue-list.js';
import type { Change } from './change.js';
import type { Ledger } from './ledger.js';
import { mutateEntry } from './mutation.js';
import { Turn } from './turn.js';

type Result = MutationResult['results'][number];

/** So many entries are changed together. */
const together = 250;

/** Changes these entries, in their order. @throws Problem `storage-full`: each entry has its old state or its new one then */
export async function mutateAll(
  ledger: Ledger,
  uids: readonly string[],
  mutation: Mutation,
  now: number,
): Promise<MutationResult> {
  const turn = new Turn();
  const results: Result[] = [];
  const writes: Promise<void>[] = [];
  let changed = 0;
  for (let at = 0; at < uids.length; at += together) {
    ledger.refuseWhileStalled();
    const changes = function* (): Generator<Change> {
      for (const uid of uids.slice(at, at + together)) {
        const { result, change } = mutateOne(ledger, uid, mutation, now);
        results.push(result);
        if (change === undefined) continue;
        changed += 1;
        yield change;
      }
    };
    writes.push(ledger.commit(changes()));
    await turn.rest();
  }
  for (const written of await Promise.allSettled(writes)) if (written.status === 'rejected') throw written.reason;
  return { requested: uids.length, changed, results };
}

function mutateOne(
  ledger: Ledger,
  uid: string,
  mutation: Mutation,
  now: number,
): { readonly result: Result; readonly change?: Change | undefined } {
  const entry = ledger.find(uid);
  if (entry === undefined) return { result: { uid, outcome: 'notFound', detail: null } };
  const { outcome, detail, change } = mutateEntry(entry, mutation, now);
  return { result: { uid, outcome, detail }, change };
}
