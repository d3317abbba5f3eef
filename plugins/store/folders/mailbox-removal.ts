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
import { removeTree } from './folder-removal.js';
import type { KeyedMutex } from '../../../core/concurrency.js';

/** Folder below the root for removed mailboxes until their files are deleted. */
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
 * Removes mailboxes. A mailbox is renamed first, so that it disappears as a whole, and then its files are deleted; what
 * remains after a crash is deleted after the next start.
 */
export class MailboxRemoval {
  readonly #context: MailboxRemovalContext;
  readonly #folder: string;

  constructor(context: MailboxRemovalContext) {
    this.#context = context;
    this.#folder = join(context.root, removedFolder);
  }

  /**
   * @param condition a precondition checked under the lock; it rejects when it fails
   * @throws Problem `not-found`, and errors of the condition
   */
  async remove(mailbox: MailboxName, condition: () => Promise<void>): Promise<void> {
    const { folders, files, sync, locks } = this.#context;
    const aside = join(this.#folder, uniqueId());
    await locks.run(lockKey(mailbox), async () => {
      const path = folders.mailbox(mailbox);
      await condition();
      await makeFolder(this.#folder, files, sync);
      await files.rename(path, aside);
      await sync.sync(this.#folder);
      await sync.sync(dirname(path));
      // The folder of a domain without mailboxes is removed unless the domain is configured.
      await files.rmdir(dirname(path)).catch(() => undefined);
    });
    await removeTree(files, aside);
  }

  /** Leftovers of a dead process. */
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
