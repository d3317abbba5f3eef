import { Readable } from 'node:stream';
import type { MailboxOwners } from '../../../core/contracts/mailbox-owners.js';
import type { Mailboxes } from '../../../core/contracts/mailboxes.js';
import { asStorageProblem } from '../../../core/disk/fault.js';
import { type Address, quoteLocalPart } from '../../../core/mime/address.js';
import { parseFolderName } from '../folders/folder-name.js';
import type { MessageSummary } from '../folders/message-summary.js';
import { mailboxNameOf, usernameOf } from '../maildir/mailbox-name.js';
import type { MaildirTree } from '../maildir/maildir.js';
import type { StoreEditor } from './message-editor.js';
import type { StoreReader } from './store-reader.js';

interface MailboxServiceDeps {
  readonly maildirs: MaildirTree;
  readonly reader: StoreReader;
  readonly editor: Pick<StoreEditor, 'messages'>;
  readonly owners: Pick<MailboxOwners, 'settle' | 'use'>;
}

const [defaultLimit, maxLimit] = [50, 500];

/** The mailboxes for other plugins. Disk faults are thrown as problems. */
export function mailboxService({ maildirs, reader, editor: { messages }, owners }: MailboxServiceDeps): Mailboxes {
  const at = <T>(address: Address, work: () => Promise<T>): Promise<T> =>
    asked(() => owners.use(usernameOf(mailboxNameOf(address)), work));
  return {
    ensure: async (address) => {
      await owners.settle(usernameOf(mailboxNameOf(address)));
      await at(address, () => maildirs.ensure(mailboxNameOf(address)));
    },
    exists: (address) => asked(() => maildirs.exists(mailboxNameOf(address))),
    list: () =>
      asked(async () => {
        const found: string[] = [];
        for (const domain of await reader.domains()) {
          for (const { user } of (await reader.mailboxes(domain)) ?? [])
            found.push(`${quoteLocalPart(user)}@${domain}`);
        }
        return found;
      }),
    folders: (mailbox) =>
      at(mailbox, async () => {
        const found = await reader.folders(mailboxNameOf(mailbox));
        return found.map(({ name, total, unread }) => ({ name, total, unread }));
      }),
    messages: (mailbox, folder, { limit = defaultLimit, cursor } = {}) =>
      at(mailbox, async () => {
        const page = await reader.list(mailboxNameOf(mailbox), parseFolderName(folder), {
          order: 'newest',
          limit: Math.max(1, Math.min(Math.trunc(limit), maxLimit)),
          ...(cursor !== undefined && { cursor }),
        });
        return { items: page.items.map(asStored), nextCursor: page.nextCursor };
      }),
    read: (mailbox, folder, id) =>
      at(mailbox, async () => {
        const place = { mailbox: mailboxNameOf(mailbox), folder: parseFolderName(folder), id };
        return (await reader.open(place)).handle.createReadStream();
      }),
    append: async (mailbox, folder, message, { read = false } = {}) => {
      const status = read ? 'read' : 'unread';
      const source = Readable.from(message, { objectMode: false });
      const append = () => messages.append(mailboxNameOf(mailbox), parseFolderName(folder), source, status);
      return (await owners.use(usernameOf(mailboxNameOf(mailbox)), append)).id;
    },
    file: (mailbox, from, to, ids) =>
      at(mailbox, async () => {
        const moved = await messages.move(mailboxNameOf(mailbox), parseFolderName(from), parseFolderName(to), ids);
        return moved.newIds;
      }),
    mark: (mailbox, folder, ids, mark) =>
      at(
        mailbox,
        async () => (await messages.mark(mailboxNameOf(mailbox), parseFolderName(folder), ids, mark)).notFound,
      ),
  };
}

async function asked<T>(answer: () => Promise<T>): Promise<T> {
  try {
    return await answer();
  } catch (error) {
    throw asStorageProblem(error);
  }
}

function asStored({ id, subject, from, internetMessageId, receivedAt, size, unread, flagged }: MessageSummary) {
  return { id, subject, from: from?.address ?? null, internetMessageId, receivedAt, size, unread, flagged };
}
