import { z } from 'zod';
import { ViewedMessage } from '../../../core/contracts/message-viewer.js';

/** JSON responses of the read-only endpoints, for the OpenAPI document. */
const count = (meaning: string) => z.int().min(0).describe(meaning);
const moment = (meaning: string) => z.string().nullable().describe(`${meaning}, ISO 8601`);

const Person = z.object({ name: z.string(), address: z.string() });

const listOf = <T extends z.ZodType>(item: T) =>
  z.object({
    items: z.array(item),
    total: count('Entries after filters'),
    limit: z.int().min(1).max(1000),
    nextCursor: z.string().nullable(),
    prevCursor: z.string().nullable(),
  });

const Folder = z.object({
  name: z.string().describe('Levels separated by a dot'),
  parent: z.string().nullable(),
  special: z.enum(['inbox', 'sent', 'drafts', 'trash', 'junk', 'archive']).nullable(),
  total: count('Messages'),
  unread: count('Unread messages'),
  size: count('Bytes of all messages'),
});

export const ListedFolder = Folder;

export const MessageSummaryAnswer = z.object({
  id: z.string().describe('Unique name of the message, without flags'),
  folder: z.string(),
  from: Person.nullable(),
  to: z.array(Person),
  subject: z.string(),
  date: moment('The Date field'),
  receivedAt: z.string().describe('ISO 8601'),
  size: count('Bytes'),
  unread: z.boolean(),
  flagged: z.boolean(),
  answered: z.boolean(),
  draft: z.boolean(),
  hasAttachments: z.boolean(),
  internetMessageId: z.string().nullable(),
  snippet: z.string().describe('The first words'),
});

const MailboxIdentity = z.object({ domain: z.string(), user: z.string(), mailbox: z.string() });

export const DomainsAnswer = listOf(z.object({ domain: z.string(), mailboxes: count('Mailboxes') }));
export const MailboxesAnswer = listOf(
  Folder.pick({ total: true, unread: true, size: true }).extend({
    user: z.string(),
    mailbox: z.string(),
    folders: count('Folders'),
  }),
).extend({ domain: z.string() });
export const MailboxAnswer = MailboxIdentity.extend({
  size: count('Bytes of all messages'),
  quota: z.int().min(0).nullable().describe('Bytes'),
  folders: z.array(Folder),
});
export const FoldersAnswer = listOf(Folder);
export const FolderAnswer = listOf(MessageSummaryAnswer).extend({
  folder: Folder,
  searchedAll: z.boolean().describe('False when a search stopped at its limit'),
});
export const PropertiesAnswer = Folder.pick({ name: true, size: true, total: true, unread: true }).extend({
  oldest: moment('Received time of the oldest message'),
  newest: moment('Received time of the newest message'),
  children: z.array(z.string()),
});
export const MessageAnswer = MessageSummaryAnswer.extend(ViewedMessage.shape);
