import { z } from 'zod';
import { messageViews } from '../../../core/contracts/message-viewer.js';
import type { Clock } from '../../../core/clock.js';
import { parseTime } from '../../../core/text/format.js';
import type { MessageFilter } from '../folders/folder-messages.js';
import { parseFolderName } from '../folders/folder-name.js';
import type { MailboxNames } from '../maildir/mailboxes.js';
import type { StoreEditor } from '../messages/message-editor.js';
import type { StoreReader } from '../messages/store-reader.js';

/** Request schemas of the read-only endpoints. */
export const MailboxParams = z.object({
  domain: z.string().describe('Mail domain, in ASCII.'),
  user: z.string().describe('Local part of the mailbox.'),
});
export const FolderParams = MailboxParams.extend({
  folder: z.string().describe('Maildir++ name, levels separated by a dot: `INBOX`, `Projects.2026`.'),
});
export const MessageParams = FolderParams.extend({
  messageId: z.string().describe('Unique name of the message, without flags.'),
});
export const PartParams = MessageParams.extend({
  part: z
    .string()
    .regex(/^(?:\d{1,5}\.){0,200}\d{1,5}$/, 'must be a part number such as 1 or 2.1')
    .describe('Number of the MIME part, as in IMAP: `1`, `2.1`.'),
});

const flag = (meaning: string) => z.boolean().optional().describe(meaning);

const moment = (meaning: string) =>
  z
    .string()
    .max(40)
    .optional()
    .transform((value, context) => {
      if (value === undefined) return undefined;
      const time = parseTime(value);
      if (!Number.isNaN(time)) return time;
      context.addIssue({ code: 'custom', message: 'must be a date or time in ISO 8601' });
      return z.NEVER;
    })
    .describe(meaning);

const cursor = z.string().max(500).optional().describe('From `nextCursor` or `prevCursor`.');
const limit = (otherwise: number) => z.int().min(1).max(1000).default(otherwise).describe('Entries of a page.');

export const ListQuery = z.strictObject({ limit: limit(50), cursor });
/** Not paged: mailboxes have few folders, and a tree cannot be split. */
export const FoldersQuery = z.strictObject({ limit: limit(1000), cursor });

const orderField = z
  .enum(['newest', 'oldest', 'desc', 'asc'])
  .default('newest')
  .transform((order): 'newest' | 'oldest' => (order === 'newest' || order === 'desc' ? 'newest' : 'oldest'))
  .describe('`newest` (or `desc`) or `oldest` (or `asc`) first, by received time.');

/** What decides which messages of a folder are in a list, and in which order. */
const listFields = {
  q: z
    .string()
    .trim()
    .max(200)
    .optional()
    .describe('Words that all occur in subject, sender, recipients, Message-ID or the first words of the text.'),
  unread: flag('Only unread messages, or only read ones.'),
  flagged: flag('Only flagged messages, or only others.'),
  since: moment('Received at this time or later.'),
  before: moment('Received before this time.'),
  order: orderField,
};

export const FolderQuery = z.strictObject({ ...listFields, limit: limit(50), cursor });
export type FolderFilters = z.output<typeof FolderQuery>;

export const MessageQuery = z.strictObject({
  view: z.enum(messageViews).optional().describe('What the page shows of the message.'),
  remote: flag('The page shows pictures from other servers.'),
  // The list that it was opened from: the page leads to its neighbours there.
  ...listFields,
});
export const HtmlQuery = z.strictObject({ remote: flag('Pictures from other servers are left in.') });
export const PartQuery = z.strictObject({ download: flag('Saved instead of shown.') });

/** Dependencies of the endpoints that change mailboxes. */
export interface StoreDeps {
  readonly reader: StoreReader;
  readonly editor: StoreEditor;
  readonly names: MailboxNames;
  readonly clock: Clock;
}

export const mailboxPath = '/store/{domain}/{user}';
export const folderPath = `${mailboxPath}/folders/{folder}`;
export const mailboxesGroup = 'Mailboxes';

/** The folder in a path. @throws Problem `bad-request` */
export const folderOf = ({ folder }: { readonly folder: string }) => parseFolderName(folder);

/** A filter from a form field; other parameters of a list, such as its order, do not select. */
export function messageFilterQuery({
  q,
  unread,
  flagged,
  since,
  before,
  all,
}: MessageFilter & { readonly all?: true | undefined }): string {
  const fields = { q, unread, flagged, since: momentOf(since), before: momentOf(before), all };
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== '');
  return new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)])).toString();
}

/** The query of a list without its defaults, as links carry it. */
export function listQuery({ order, ...filters }: Omit<FolderFilters, 'limit' | 'cursor'>): string {
  const filter = messageFilterQuery(filters);
  return [filter, order === 'newest' ? '' : 'order=oldest'].filter((piece) => piece !== '').join('&');
}

const momentOf = (time: number | undefined): string | undefined =>
  time === undefined ? undefined : new Date(time).toISOString();
