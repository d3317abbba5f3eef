import type { SharedDatabase } from '../../../core/contracts/cluster.js';
import type {
  Mutation,
  MutationPreview,
  MutationResult,
  MutationRun,
  Selector,
} from '../../../core/contracts/relay-queue.js';
import { problem } from '../../../core/problem.js';
import { pluralize } from '../../../core/text/format.js';
import { summaryOf } from '../queue/entry-list.js';
import { choiceOf } from '../queue/file-relay-queue.js';
import { mutateEntry } from '../queue/mutation.js';
import { noteHeld, Reach } from '../queue/mutations.js';
import { versionOf } from '../queue/queued-entry.js';
import { LockedEntries, readEntries, type StoredRows } from './entry-rows.js';
import type { EntrySearch } from './entry-search.js';
import { changeDeps } from './settlements.js';

/** Entries of one transaction. */
const together = 250;
const maxSample = 10;

interface MutationsInput {
  readonly database: SharedDatabase;
  readonly search: EntrySearch;
  readonly committed: (entries: LockedEntries) => void;
}

/** What an operator does to entries. */
export class EntryMutations {
  readonly #input: MutationsInput;

  constructor(input: MutationsInput) {
    this.#input = input;
  }

  async mutate(selector: Selector, mutation: Mutation, now: number, run?: MutationRun): Promise<MutationResult> {
    const uids = await this.#chosen(selector);
    const done: Done = { changed: 0, results: [], newlyHeld: {}, reach: new Reach() };
    for (let at = 0; at < uids.length && run?.signal.aborted !== true; at += together) {
      await this.#mutateSome(uids.slice(at, at + together), { selector, mutation, now, done });
      run?.progress({ ...done.reach.counts, total: uids.length, done: done.results.length });
    }
    const { changed, results, newlyHeld, reach } = done;
    return {
      requested: uids.length,
      changed,
      results,
      ...reach.counts,
      ...(mutation.operation === 'hold' && { newlyHeld }),
    };
  }

  async #mutateSome(uids: readonly string[], { selector, mutation, now, done }: Order): Promise<void> {
    const chooses = choiceOf(selector);
    const { entries, plan } = await this.#input.database.transaction('pages', async (sql) => {
      const locked = await LockedEntries.lock(sql, uids.toSorted(), changeDeps);
      for (const uid of uids) refuseOtherVersion(selector, locked.get(uid));
      const planned = uids.map((uid) => {
        const rows = locked.get(uid);
        if (rows === undefined) return { uid, add: () => undefined, outcome: 'notFound', detail: null } as const;
        const { entry } = rows;
        const mutated = mutateEntry(entry, mutation, now, chooses);
        const { outcome, detail, change } = mutated;
        // Counted as they were before.
        const reach = new Reach();
        reach.add(entry, mutated);
        const held: Record<string, readonly number[]> = {};
        if (mutation.operation === 'hold') noteHeld(uid, mutated, held);
        if (change !== undefined) locked.change(rows, change, now);
        const add = (): void => {
          done.reach.merge(reach);
          Object.assign(done.newlyHeld, held);
          if (change !== undefined) done.changed += 1;
        };
        return { uid, add, outcome, detail };
      });
      await locked.write(sql, now);
      return { entries: locked, plan: planned };
    });
    for (const { uid, outcome, detail, add } of plan) {
      done.results.push({ uid, outcome, detail });
      add();
    }
    this.#input.committed(entries);
  }

  async preview(selector: Selector, mutation: Mutation, now: number): Promise<MutationPreview> {
    const uids = await this.#chosen(selector);
    const reach = new Reach();
    const sample: MutationPreview['sample'][number][] = [];
    for (let at = 0; at < uids.length; at += together) {
      const some = uids.slice(at, at + together);
      const found = await this.#input.database.transaction('pages', (sql) => readEntries(sql, some, 'read'));
      const byUid = new Map(found.map((rows) => [rows.entry.uid, rows]));
      for (const uid of some) {
        const rows = byUid.get(uid);
        refuseOtherVersion(selector, rows);
        if (rows === undefined) continue;
        const mutated = mutateEntry(rows.entry, mutation, now, choiceOf(selector));
        reach.add(rows.entry, mutated);
        if (mutated.recipients.length === 0 || sample.length >= maxSample) continue;
        sample.push({ entry: summaryOf(rows.entry), addresses: mutated.recipients.map(({ address }) => address) });
      }
    }
    return { ...reach.counts, sample };
  }

  async #chosen(selector: Selector): Promise<readonly string[]> {
    if ('uids' in selector) return selector.uids;
    if ('recipients' in selector) return Object.keys(selector.recipients);
    const uids = await this.#input.search.matching(selector.filter);
    if (selector.expect === undefined || selector.expect === uids.length) return uids;
    const matches = pluralize(uids.length, 'entry matches', 'entries match');
    throw problem('conflict', `${matches} now, not ${selector.expect}.`);
  }
}

interface Done {
  changed: number;
  readonly results: MutationResult['results'][number][];
  readonly newlyHeld: Record<string, readonly number[]>;
  readonly reach: Reach;
}

interface Order {
  readonly selector: Selector;
  readonly mutation: Mutation;
  readonly now: number;
  readonly done: Done;
}

function refuseOtherVersion(selector: Selector, rows: StoredRows | undefined): void {
  if (!('uids' in selector) || selector.isExpected === undefined) return;
  if (rows !== undefined && selector.isExpected(versionOf(rows.entry))) return;
  throw problem('precondition-failed', 'The entry has changed since you read it. Read it again, then repeat.');
}
