import { service } from './service.js';
import type { Entry } from './queue-entry.js';
import type { EntryFilter, EntryPage, ListOptions, QueueStatistics } from './queue-list.js';

/** The queue of mail for other servers, as plugins other than its owner see it. */
export interface QueuedMail {
  find(uid: string): Promise<Entry | undefined>;
  list(options: ListOptions): Promise<EntryPage>;
  count(filter: EntryFilter): Promise<number>;
  /** With a filter: of the entries that match, and of their recipients that match its criteria of recipients. */
  statistics(now: number, filter?: EntryFilter): Promise<QueueStatistics>;
  /** Open entries. */
  readonly size: number;
}

export const relayQueue = service<QueuedMail>('postern.relay-queue');
