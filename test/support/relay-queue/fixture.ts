import assert from 'node:assert/strict';
import type { Entry, NewEntry } from '../../../core/contracts/queue-entry.js';
import type { Lease, RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import { isProblem, type ProblemName } from '../../../core/problem.js';
import type { Ending } from '../ending.js';
import type { HandClock } from '../hand-clock.js';
import { claiming, newEntry, type EntryWishes } from '../queue-entries.js';

/** A queue under test, and what it stands on. */
export interface QueueFixture {
  readonly queue: RelayQueue;
  readonly clock: HandClock;
  /** A message as it comes from the spool. */
  message(body?: string): Promise<SpooledMessage>;
  /** Stops the queue in an orderly way and opens it again, over the same entries. */
  reopen(): Promise<RelayQueue>;
}

export type OpenQueueFixture = (test: Ending, options?: { readonly maxEntries?: number }) => Promise<QueueFixture>;

/** Accepts an entry. */
export async function accept(fixture: QueueFixture, wishes: EntryWishes = {}, body?: string): Promise<NewEntry> {
  const entry = newEntry(fixture.clock.now(), wishes);
  const message = await fixture.message(body);
  const prepared = await fixture.queue.prepare(entry, message);
  await prepared.commit();
  prepared.release();
  await message.release();
  return entry;
}

export async function claimOne(fixture: Pick<QueueFixture, 'queue' | 'clock'>): Promise<Lease> {
  const [lease] = await fixture.queue.claim(claiming(fixture.clock.now(), { limit: 1 }));
  assert.ok(lease !== undefined, 'something is due');
  return lease;
}

export async function entryOf(queue: RelayQueue, uid: string): Promise<Entry> {
  const entry = await queue.find(uid);
  assert.ok(entry !== undefined, 'the entry is there');
  return entry;
}

export const isThe = (name: ProblemName) => (error: unknown) => isProblem(error) && error.problem === name;
