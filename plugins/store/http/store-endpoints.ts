import type { Clock } from '../../../core/clock.js';
import { parseFolderName } from '../folders/folder-name.js';
import type { MailboxNames } from '../maildir/mailbox-names.js';
import type { StoreEditor } from '../messages/store-editor.js';
import type { StoreReader } from '../messages/store-reader.js';

/** What the endpoints that change mailboxes stand on. */
export interface StoreSite {
  readonly reader: StoreReader;
  readonly editor: StoreEditor;
  readonly names: MailboxNames;
  readonly clock: Clock;
}

export const mailboxPath = '/store/{domain}/{user}';
export const folderPath = `${mailboxPath}/folders/{folder}`;
export const group = 'Mailboxes';

/** A folder as a path names it. @throws Problem `bad-request` */
export const folderOf = ({ folder }: { readonly folder: string }) => parseFolderName(folder);
