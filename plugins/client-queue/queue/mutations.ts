import type { Mutation, MutationResult } from '../../../core/contracts/queue-list.js';
import type { Change } from './change.js';
import type { Ledger } from './ledger.js';
import { mutateEntry } from './mutation.js';
import { Turn } from './turn.js';

type Result = MutationResult['results'][number];

/** So many entries are changed together, or fewer with so many recipients: others shall not wait long. */
const together = 250;
const recipientsTogether = 2500;

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
  for (const some of groupsOf(uids, ledger)) {
    ledger.refuseWhileStalled();
    const changes = function* (): Generator<Change> {
      for (const uid of some) {
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
