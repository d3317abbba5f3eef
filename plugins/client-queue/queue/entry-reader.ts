import { z } from 'zod';
import type { Entry } from '../../../core/contracts/queue-entry.js';
import type { EntryFilter, EntryPage, ListOptions, QueueStatistics } from '../../../core/contracts/queue-list.js';
import type { Clock } from '../../../core/clock.js';
import { statesOf, testOf } from './entry-filter.js';
import { PageSelection, summaryOf } from './entry-list.js';
import type { Ledger } from './ledger.js';
import { isOpen, type QueuedEntry, versionOf } from './queued-entry.js';
import { attemptsOf } from './snapshot-writer.js';
import type { Snapshots } from './snapshots.js';
import { Tally } from './statistics.js';
import { StoredAttempt } from './stored-envelope.js';
import { TimeSlice } from '../../../core/concurrency.js';

const History = z.array(StoredAttempt);

/** Answers questions about the entries, from memory; only histories are read from the disk. */
export class EntryReader {
  readonly #ledger: Ledger;
  readonly #snapshots: Snapshots;
  readonly #clock: Clock;

  constructor(ledger: Ledger, snapshots: Snapshots, clock: Clock) {
    this.#ledger = ledger;
    this.#snapshots = snapshots;
    this.#clock = clock;
  }

  async entry(entry: QueuedEntry): Promise<Entry> {
    const { notices, pending, discardAt } = entry.details;
    const history = History.safeParse(attemptsOf(await this.#snapshots.history(entry)));
    return {
      ...summaryOf(entry),
      accepted: entry.accepted,
      history: history.data ?? [],
      notices,
      pendingOperation: pending?.operation ?? null,
      discardAt,
      version: versionOf(entry),
      hasMessage: !entry.isDone,
    };
  }

  async list(options: ListOptions): Promise<EntryPage> {
    const selection = new PageSelection(options);
    await this.#each(options.filter, (entry) => selection.add(entry));
    return selection.result();
  }

  async count(filter: EntryFilter): Promise<number> {
    let count = 0;
    await this.#each(filter, () => {
      count += 1;
    });
    return count;
  }

  async matching(filter: EntryFilter): Promise<readonly string[]> {
    const found: string[] = [];
    await this.#each(filter, ({ uid }) => found.push(uid));
    return found;
  }

  /** Shows all entries that match, with turns for others in between. */
  async #each(filter: EntryFilter, visit: (entry: QueuedEntry) => void): Promise<void> {
    const test = testOf(filter, this.#clock.now());
    const slice = new TimeSlice();
    for (const entries of this.#mapsOf(filter)) {
      for (const entry of entries.values()) {
        if (test(entry)) visit(entry);
        const pause = slice.yieldIfDue();
        if (pause !== undefined) await pause;
      }
    }
  }

  #mapsOf(filter: EntryFilter): readonly ReadonlyMap<string, QueuedEntry>[] {
    const states = [...statesOf(filter)].map((state) => isOpen({ state }));
    const { open, finished } = this.#ledger;
    return [...(states.includes(true) ? [open] : []), ...(states.includes(false) ? [finished] : [])];
  }

  async statistics(now: number, quarantined: number): Promise<QueueStatistics> {
    const tally = new Tally(now);
    const slice = new TimeSlice();
    for (const entries of [this.#ledger.open, this.#ledger.finished]) {
      for (const entry of entries.values()) {
        tally.add(entry);
        const pause = slice.yieldIfDue();
        if (pause !== undefined) await pause;
      }
    }
    return { ...(await tally.result(quarantined)), damaged: this.#ledger.damagedCount };
  }
}
