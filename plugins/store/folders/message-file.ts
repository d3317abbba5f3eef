import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { problem } from '../../../core/problem.js';
import type { MessageEntry } from '../maildir/message-entry.js';
import type { MailboxFolder } from './folder-name.js';
import type { MailboxFolders } from './mailbox-folder.js';

/** A message that is open for reading. The caller closes it. */
export interface MessageFile {
  readonly entry: MessageEntry;
  readonly handle: FileHandle;
  /** Bytes of the file. */
  readonly size: number;
}

/** Repeats when another program renamed the file meanwhile. */
const openTries = 5;

/**
 * Opens a message by its id, again if another program renames it between lookup and open.
 * @throws Problem `not-found`
 */
export async function openMessage(folders: MailboxFolders, folder: MailboxFolder, id: string): Promise<MessageFile> {
  for (let attempt = 0; attempt < openTries; attempt++) {
    const { byId, quiet } = await folders.messages.locate(folder, [id], attempt === 0 ? 'looked' : 'read');
    const entry = byId.get(id);
    // A message may be missed in a folder that is changing, but not in a quiet one.
    if (entry === undefined && quiet) break;
    const handle = entry === undefined ? undefined : await folders.confinement.openFile(join(folder.path, entry.file));
    if (entry === undefined || handle === undefined) continue;
    return { entry, handle, size: (await handle.stat()).size };
  }
  throw problem('not-found', 'There is no such message in this folder.');
}

/** The first bytes of the message; fewer only when it is shorter. */
export async function readHead(file: Pick<MessageFile, 'handle' | 'size'>, bytes: number): Promise<Buffer> {
  const head = Buffer.allocUnsafe(Math.min(bytes, file.size));
  let length = 0;
  while (length < head.length) {
    const { bytesRead } = await file.handle.read(head, length, head.length - length, length);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  return head.subarray(0, length);
}
