import type { Clock } from '../../../core/clock.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { folderSyncOf } from '../../../core/disk/folder.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { Log } from '../../../core/log/log.js';
import { FolderEditor } from '../folders/folder-editor.js';
import { FolderIntents } from '../folders/folder-intent.js';
import { mailboxFolder } from '../maildir/mailbox-name.js';
import { MailboxLocks } from '../maildir/mailbox-locks.js';
import { MailboxRemoval } from '../maildir/mailbox-removal.js';
import { MailboxQuotas } from '../delivery/mailbox-quota.js';
import { usageOf } from '../delivery/mailbox-usage.js';
import type { UniqueNames } from '../maildir/maildir-name.js';
import { MessageEditor } from './message-editor.js';
import type { StoreReader } from './store-reader.js';

export interface StoreEditorInput {
  readonly reader: StoreReader;
  /** Absolute and resolved. */
  readonly root: string;
  readonly names: UniqueNames;
  /** Bytes; null for none. */
  readonly limitOf: (mailbox: MailboxName) => number | null | Promise<number | null>;
  readonly clock: Clock;
  readonly log: Log;
  readonly files?: FileLayer;
}

/** The writing side of the store. */
export interface StoreEditor {
  readonly folders: FolderEditor;
  readonly messages: MessageEditor;
  readonly quotas: MailboxQuotas;
  readonly mailboxes: MailboxRemoval;
}

/** Opens it, and completes the changes of folders that a dead process began. */
export async function openStoreEditor(input: StoreEditorInput): Promise<StoreEditor> {
  const { reader, root, names, limitOf, clock, log, files = nodeFiles } = input;
  const sync = folderSyncOf(files);
  const intents = new FolderIntents({ root, files, sync, clock, log });
  await intents.resume();
  const quotas = new MailboxQuotas({
    files,
    clock,
    log,
    limitOf,
    pathOf: (mailbox) => mailboxFolder(root, mailbox),
    count: (mailbox) => usageOf(reader, mailbox),
  });
  const locks = new MailboxLocks();
  const ground = { folders: reader.mailboxFolders, files, sync, locks, intents, names, quotas, clock };
  const folders = new FolderEditor(ground);
  const mailboxes = new MailboxRemoval({ ...ground, root, log });
  return { folders, messages: new MessageEditor(ground, folders), quotas, mailboxes };
}
