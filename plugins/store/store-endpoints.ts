import type { Clock } from '../../core/clock.js';
import { problem } from '../../core/problem.js';
import { parseFolderName } from './folder-name.js';
import type { MailboxNames } from './mailbox-names.js';
import type { StoreEditor } from './store-editor.js';
import type { StoreReader } from './store-reader.js';

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

/** @throws Problem `invalid` when the body names a folder that is not there */
export const missingParent = (name: string) =>
  problem('invalid', {
    detail: `There is no folder ${name} to put it into.`,
    errors: [{ pointer: '/parent', message: 'must be a folder of this mailbox' }],
  });
