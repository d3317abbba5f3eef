import { service } from './service.js';
import type { Entry } from './queue-entry.js';
import type { EntryFilter, EntryPage, ListOptions, QueueStatistics } from './queue-list.js';

/** The queue of mail for other servers, as plugins other than its owner see it. */
export interface QueuedMail {
  find(uid: string): Promise<Entry | undefined>;
  list(options: ListOptions): Promise<EntryPage>;
  count(filter: EntryFilter): Promise<number>;
  statistics(now: number): Promise<QueueStatistics>;
  /** Open entries. */
  readonly size: number;
}

export const relayQueue = service<QueuedMail>('postern.relay-queue');
