import { setTimeout as wait } from 'node:timers/promises';
import { isMissing } from '../../../core/disk/fault.js';
import { mapBounded, TimeSlice } from '../../../core/concurrency.js';
import type { MailboxFolder } from './folder-name.js';
import type { MailboxFolders } from './mailbox-folder.js';
import type { MessageEntry } from '../maildir/message-entry.js';

interface ChangeOutcome {
  /** Ids that were changed. */
  readonly done: readonly string[];
  /** Ids that are not in the folder, or that another program moved away on every attempt. */
  readonly notFound: readonly string[];
}

/** Repeats when another program renamed a file meanwhile. */
const changeTries = 5;

const changesAtOnce = 32;

const locatedAtOnce = 1000;

const waitMs = 25;

/**
 * Applies `act` to the files of messages. Another program may rename a file between lookup and action (a flag, or from
 * `new` to `cur`); then it is looked up again.
 * @param act rejects with ENOENT when the file is gone
 */
export async function changeMessages(
  folders: MailboxFolders,
  folder: MailboxFolder,
  ids: readonly string[],
  act: (entry: MessageEntry) => Promise<void>,
): Promise<ChangeOutcome> {
  const done: string[] = [];
  let left: readonly string[] = await eachOnce(ids);
  for (let attempt = 0; attempt < changeTries && left.length > 0; attempt++) {
    if (attempt > 1) await wait(waitMs * attempt);
    const missed: string[] = [];
    let isElsewhere = false;
    let isQuiet = true;
    for (let start = 0; start < left.length; start += locatedAtOnce) {
      // The change itself modifies the folder: other files are where they were, or are looked up again.
      const trust = start > 0 ? 'known' : attempt === 0 ? 'looked' : 'read';
      const ids = left.slice(start, start + locatedAtOnce);
      const { byId, quiet } = await folders.messages.locate(folder, ids, trust);
      isQuiet &&= quiet;
      await mapBounded(ids, changesAtOnce, async (id) => {
        const entry = byId.get(id);
        if (entry !== undefined && (await unlessMoved(() => act(entry)))) return done.push(id);
        isElsewhere ||= entry !== undefined;
        return missed.push(id);
      });
    }
    left = missed;
    // A message counts as missing only when the folder is quiet.
    if (attempt > 0 && !isElsewhere && isQuiet) break;
  }
  return { done, notFound: left };
}

/** In their order. */
async function eachOnce(ids: readonly string[]): Promise<readonly string[]> {
  const slice = new TimeSlice();
  const seen = new Set<string>();
  const unique: string[] = [];
  for (const [index, id] of ids.entries()) {
    if (index % locatedAtOnce === 0) await slice.yieldIfDue();
    if (!seen.has(id)) unique.push(id);
    seen.add(id);
  }
  return unique;
}

async function unlessMoved(act: () => Promise<void>): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
