import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { FolderSummary } from '../folders/folder-tree.js';
import type { MailboxUsage } from '../delivery/mailbox-quota.js';
import type { StoreReader } from './store-reader.js';

/** Repeats when folders were renamed during the count. */
const tries = 10;

/**
 * Counts every message; zero for a mailbox that does not exist yet. A folder renamed during the count can be missed, so
 * it is repeated until all are found.
 */
export async function usageOf(
  reader: Pick<StoreReader, 'folders' | 'mailboxFolders'>,
  mailbox: MailboxName,
): Promise<MailboxUsage> {
  let most: MailboxUsage = { size: 0, count: 0 };
  if (!reader.mailboxFolders.has(mailbox)) return most;
  for (let attempt = 0; attempt < tries; attempt++) {
    const folders = await reader.folders(mailbox);
    const usage = sumOf(folders);
    const counted = new Set(folders.map(({ name }) => name));
    const present = await reader.mailboxFolders.list(mailbox);
    if (present.every(({ name }) => counted.has(name.name))) return usage;
    if (usage.size > most.size) most = usage;
  }
  return most;
}

function sumOf(folders: readonly FolderSummary[]): MailboxUsage {
  return {
    size: folders.reduce((sum, { size }) => sum + size, 0),
    count: folders.reduce((sum, { total }) => sum + total, 0),
  };
}
