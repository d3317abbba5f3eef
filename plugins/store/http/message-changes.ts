import type { Readable } from 'node:stream';
import { z } from 'zod';
import { pluralize } from '../../../core/text/format.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import { ask } from '../../../core/http/response.js';
import { isProblem, problem } from '../../../core/problem.js';
import { deletesForGood, type FlagMark, trash } from '../messages/message-editor.js';
import {
  backField,
  FolderField,
  markedWords,
  oneSelector,
  preview,
  previewAnswer,
  select,
  selectionBytes,
  messageSelection,
  undoMove,
} from './selection.js';
import * as schema from './store-query.js';
import {
  folderOf,
  folderPath,
  mailboxesGroup,
  mailboxPath,
  type StoreDeps,
  messageFilterQuery,
} from './store-query.js';
import { folderHref, mailboxHref } from './view-model.js';

const access = 'operate';
const notFound = z.array(z.string()).describe('Ids that are not in the folder');

/** Move, delete, mark and file messages. */
export function messageChangeEndpoints(deps: StoreDeps): readonly AnyEndpoint[] {
  return [
    moving(deps),
    deleting(deps),
    marking(deps, { name: 'read-status', marks: ['read', 'unread'], summary: 'Mark messages read or unread' }),
    marking(deps, { name: 'flag-status', marks: ['flag', 'unflag'], summary: 'Flag messages, or unflag them' }),
    filing(deps),
  ];
}

function moving({ reader, editor, names }: StoreDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: `${mailboxPath}/messages/move`,
    summary: 'Move messages to another folder',
    group: mailboxesGroup,
    access,
    params: schema.MailboxParams,
    body: {
      kind: 'fields',
      limit: selectionBytes,
      schema: z
        .strictObject({ fromFolder: FolderField, toFolder: FolderField, ...messageSelection, back: backField })
        .superRefine(oneSelector),
    },
    answer: z.object({ moved: z.int(), notFound, newIds: z.record(z.string(), z.string()), ...previewAnswer }),
    async handle({ params, body }) {
      const mailbox = await names.parse(params);
      const { fromFolder, toFolder } = body;
      const place = names.describe(mailbox);
      const location = body.back ?? folderHref(place, fromFolder.name);
      const { ids } = await select(reader, mailbox, fromFolder, body);
      if (body.dryRun === true) {
        const { count, ...rest } = await preview(reader, mailbox, fromFolder, ids);
        return respond({ model: { moved: count, newIds: {}, ...rest } });
      }
      const model = await editor.messages.move(mailbox, fromFolder, toFolder, ids);
      return respond({
        status: 200,
        model,
        location,
        notice: `${pluralize(model.moved, 'message')} moved to ${toFolder.name}.`,
        ...undoMove(mailboxHref(place), { from: fromFolder, to: toFolder, newIds: model.newIds }, location),
        audit: {
          action: 'messages.move',
          selector: { from: fromFolder.name, to: toFolder.name },
          counts: { moved: model.moved, notFound: model.notFound.length },
        },
      });
    },
  });
}

function deleting({ reader, editor, names }: StoreDeps): AnyEndpoint {
  const permanent = z.boolean().optional().describe('For good; else to Trash, unless the folder is Trash or Junk.');
  return defineEndpoint({
    method: 'POST',
    path: `${mailboxPath}/messages/delete`,
    summary: 'Delete messages: to Trash, or permanently',
    group: mailboxesGroup,
    access,
    params: schema.MailboxParams,
    body: {
      kind: 'fields',
      limit: selectionBytes,
      schema: z.strictObject({ folder: FolderField, permanent, ...messageSelection }).superRefine(oneSelector),
    },
    answer: z.object({ deleted: z.int(), notFound, ...previewAnswer }),
    async handle({ params, body, request }) {
      const mailbox = await names.parse(params);
      const { folder } = body;
      const { ids } = await select(reader, mailbox, folder, body);
      const back = folderHref(names.describe(mailbox), folder.name);
      if (body.dryRun === true) {
        const { count, ...rest } = await preview(reader, mailbox, folder, ids);
        return respond({ model: { deleted: count, ...rest } });
      }
      const forGood = body.permanent === true || deletesForGood(folder);
      if (forGood && !request.confirmed) {
        const question = `Delete ${pluralize(ids.length, 'message')} of ${folder.name} permanently?`;
        const chosen =
          body.messageIds === undefined ? { filter: messageFilterQuery(body.filter ?? {}) } : { messageIds: ids };
        const fields = { folder: folder.name, permanent: 'true', ...chosen, expect: String(ids.length) };
        return ask(request, { question, fields, label: 'Delete permanently', back });
      }
      const { newIds, ...model } = forGood
        ? { ...(await editor.messages.remove(mailbox, folder, ids)), newIds: {} }
        : await editor.messages.discard(mailbox, folder, ids);
      const undo = undoMove(mailboxHref(names.describe(mailbox)), { from: folder, to: trash, newIds }, back);
      return respond({
        status: 200,
        model,
        location: back,
        notice: `${pluralize(model.deleted, 'message')} ${forGood ? 'deleted permanently' : 'moved to Trash'}.`,
        ...undo,
        audit: {
          action: forGood ? 'messages.delete' : 'messages.trash',
          selector: { folder: folder.name },
          counts: { deleted: model.deleted, notFound: model.notFound.length },
        },
      });
    },
  });
}

interface Marking {
  readonly name: string;
  readonly marks: readonly [FlagMark, FlagMark];
  readonly summary: string;
}

function marking({ reader, editor, names }: StoreDeps, { name, marks, summary }: Marking): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: `${mailboxPath}/messages/${name}`,
    summary,
    group: mailboxesGroup,
    access,
    params: schema.MailboxParams,
    body: {
      kind: 'fields',
      limit: selectionBytes,
      schema: z
        .strictObject({ folder: FolderField, action: z.enum(marks), ...messageSelection })
        .superRefine(oneSelector),
    },
    answer: z.object({
      updated: z.int(),
      unchanged: z.int().describe('Had that status already'),
      notFound,
      ...previewAnswer,
    }),
    async handle({ params, body }) {
      const mailbox = await names.parse(params);
      const { folder, action } = body;
      const { ids } = await select(reader, mailbox, folder, body);
      if (body.dryRun === true) {
        const { count, ...rest } = await preview(reader, mailbox, folder, ids);
        return respond({ model: { updated: count, unchanged: 0, ...rest } });
      }
      const model = await editor.messages.mark(mailbox, folder, ids, action);
      return respond({
        status: 200,
        model,
        notice: `${pluralize(model.updated, 'message')} ${markedWords[action]}.`,
        audit: { action: `messages.${action}`, selector: { folder: folder.name }, counts: { updated: model.updated } },
      });
    },
  });
}

const Filed = z.object({ id: z.string(), folder: z.string(), size: z.int() });

function filing({ editor, names }: StoreDeps): AnyEndpoint {
  const query = z.strictObject({
    unread: z.boolean().optional().describe('As a new message; else as one that was read.'),
  });
  return defineEndpoint({
    method: 'POST',
    path: `${folderPath}/messages`,
    success: [201],
    summary: 'Put a raw message into a folder, or several as multipart/form-data',
    group: mailboxesGroup,
    access,
    params: schema.FolderParams,
    query,
    body: { kind: 'raw', types: ['message/rfc822', 'application/octet-stream', 'text/plain', 'multipart/form-data'] },
    answer: z.union([Filed, z.object({ items: z.array(Filed).describe('Of a form, one for each file') })]),
    async handle({ params, query, request }) {
      const mailbox = await names.parse(params);
      const folder = folderOf(params);
      const href = folderHref(names.describe(mailbox), folder.name);
      const isUnread = query.unread === true || request.fields['unread'] === 'true';
      const append = async (source: Readable) => {
        const filed = await editor.messages.append(mailbox, folder, source, isUnread ? 'unread' : 'read');
        return { ...filed, folder: folder.name };
      };
      const items = await appendAll(sourcesOf(request), append);
      const [only] = items;
      const isForm = request.stream === undefined;
      return respond<object>({
        status: 201,
        model: isForm || only === undefined ? { items } : only,
        location: isForm || only === undefined ? href : `${href}/messages/${encodeURIComponent(only.id)}`,
        notice: `${pluralize(items.length, 'message')} added.`,
        audit: {
          action: 'messages.append',
          selector: { folder: folder.name },
          counts: { messages: items.length, bytes: items.reduce((sum, { size }) => sum + size, 0) },
        },
      });
    },
  });
}

/** The request body, or the files of a form. */
function sourcesOf({ stream, files }: EndpointRequest): readonly (() => Readable)[] {
  if (stream !== undefined) return [() => stream];
  // What a browser sends for a field without a file.
  const chosen = files.filter(({ filename, size }) => filename !== '' || size > 0);
  if (chosen.length === 0) throw problem('bad-request', 'Send the message as the body, or choose a file.');
  return chosen.map((file) => () => file.open());
}

/** One after the other. Messages added before a refused one stay, and the error says so. */
async function appendAll<T>(
  sources: readonly (() => Readable)[],
  append: (source: Readable) => Promise<T>,
): Promise<readonly T[]> {
  const items: T[] = [];
  for (const open of sources) {
    try {
      items.push(await append(open()));
    } catch (error) {
      if (items.length === 0 || !isProblem(error)) throw error;
      const before = `${pluralize(items.length, 'message')} of ${sources.length} added, then: `;
      throw problem(error.problem, { ...error.details, detail: `${before}${error.details.detail ?? error.message}` });
    }
  }
  return items;
}
