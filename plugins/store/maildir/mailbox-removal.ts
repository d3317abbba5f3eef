import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { type FolderSync, makeFolder } from '../../../core/disk/folder.js';
import { uniqueId, uniqueIdPattern } from '../../../core/disk/id.js';
import type { OwnEntry } from '../../../core/host/unknown-entries.js';
import type { Log } from '../../../core/log/log.js';
import { lockKey, type MailboxFolders } from './mailbox-folder.js';
import { removeTree } from '../folders/folder-removal.js';
import type { KeyedMutex } from '../../../core/concurrency.js';

/** Below the folder of the mailboxes: those that were removed, until all their files are gone. */
export const removedFolder = '.removed';
export const isRemovedMailbox: OwnEntry = (entry) => entry.isDirectory() && uniqueIdPattern.test(entry.name);

export interface MailboxRemovalContext {
  /** Resolved folder of the mailboxes. */
  readonly root: string;
  readonly folders: MailboxFolders;
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly locks: KeyedMutex;
  readonly log: Log;
}

/**
 * Removes whole mailboxes. One is renamed aside first, so that it is there as a whole or not at all, and then its files are
 * removed; what a crash leaves of those is removed behind the next start.
 */
export class MailboxRemoval {
  readonly #context: MailboxRemovalContext;
  readonly #folder: string;

  constructor(context: MailboxRemovalContext) {
    this.#context = context;
    this.#folder = join(context.root, removedFolder);
  }

  /**
   * @param condition what must hold when nobody else changes the mailbox any more; it rejects else
   * @throws Problem `not-found`, and those of the condition
   */
  async remove(mailbox: MailboxName, condition: () => Promise<void>): Promise<void> {
    const { folders, files, sync, locks } = this.#context;
    const aside = join(this.#folder, uniqueId());
    await locks.run(lockKey(mailbox), async () => {
      const path = await folders.mailbox(mailbox);
      await condition();
      await makeFolder(this.#folder, files, sync);
      await files.rename(path, aside);
      await sync.sync(this.#folder);
      await sync.sync(dirname(path));
      // A domain without mailboxes is none, unless the configuration names it.
      await files.rmdir(dirname(path)).catch(() => undefined);
    });
    await removeTree(files, aside);
  }

  /** What a dead process left. */
  async resume(): Promise<void> {
    const { files, log } = this.#context;
    try {
      for (const entry of await readdir(this.#folder, { withFileTypes: true })) {
        if (!isRemovedMailbox(entry)) continue;
        await removeTree(files, join(this.#folder, entry.name));
        log.info({ removed: entry.name }, 'the removal of a mailbox that was interrupted is complete');
      }
    } catch (error) {
      if (!isMissing(error)) log.error({ err: error }, 'the removal of a mailbox could not be completed');
    }
  }
}
