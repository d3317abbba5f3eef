import type { SummarisedEntry } from '../cache/folder-task.js';
import type { MailboxFolder } from './folder-name.js';
import type { Summary } from '../mime/summary.js';

/** A message in lists. */
export interface MessageSummary extends Summary {
  readonly id: string;
  readonly folder: string;
  /** ISO 8601. */
  readonly receivedAt: string;
  /** Bytes. */
  readonly size: number;
  readonly unread: boolean;
  readonly flagged: boolean;
  readonly answered: boolean;
  readonly draft: boolean;
}

export function describeMessage(folder: MailboxFolder, { entry, summary, size }: SummarisedEntry): MessageSummary {
  return {
    id: entry.id,
    folder: folder.name.name,
    ...summary,
    receivedAt: new Date(entry.receivedAt).toISOString(),
    size,
    unread: !entry.flags.includes('S'),
    flagged: entry.flags.includes('F'),
    answered: entry.flags.includes('R'),
    draft: entry.flags.includes('D'),
  };
}
