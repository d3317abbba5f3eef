import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { problem } from '../../../core/problem.js';
import type { MessageEntry } from './message-entry.js';
import type { MailboxFolder, MailboxFolders } from './mailbox-folder.js';

/** A message that is open for reading. Who opens it closes it. */
export interface MessageFile {
  readonly entry: MessageEntry;
  readonly handle: FileHandle;
  /** Bytes of the file. */
  readonly size: number;
}

/** A reader that renames each time we look must be very quick to outrun that many looks. */
const openTries = 5;

/**
 * Opens a message by its id. Another program may rename it between the look and the opening: then it is looked for again.
 * @throws Problem `not-found`
 */
export async function openMessage(folders: MailboxFolders, folder: MailboxFolder, id: string): Promise<MessageFile> {
  for (let attempt = 0; attempt < openTries; attempt++) {
    const { byId, quiet } = await folders.messages.locate(folder, [id], attempt === 0 ? 'looked' : 'read');
    const entry = byId.get(id);
    // A folder that is being changed may hide a message from one look; a quiet one does not.
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
