import { z } from 'zod';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import {
  type AnyEndpoint,
  defineEndpoint,
  type EndpointRequest,
  respond,
  type Response,
} from '../../../core/http/endpoint.js';
import { ask } from '../../../core/http/response.js';
import { pluralize } from '../../../core/text/format.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { MessageFilter } from '../folders/folder-messages.js';
import { type FolderName, parseFolderName } from '../folders/folder-name.js';
import { parseMessageId } from '../maildir/message-name.js';
import { deletesForGood, type FlagMark, trash } from '../messages/message-editor.js';
import type { MessageSummary } from '../folders/message-summary.js';
import type { StoreReader } from '../messages/store-reader.js';
import { MessageSummaryAnswer } from './store-answer.js';
import * as schema from './store-query.js';
import {
  folderOf,
  folderPath,
  FolderQuery,
  mailboxesGroup,
  type StoreDeps,
  messageFilterQuery,
} from './store-query.js';
import { folderHref, mailboxHref } from './view-model.js';

export const selectionBytes = 2 * 1024 * 1024;
const maxIds = 10_000;
export const sampleSize = 10;

/** A parser of the store as a schema: its errors become 422 with the field. */
function parsed<T>(parse: (text: string) => T, meaning: string) {
  return z
    .string()
    .max(1000)
    .transform((text, context): T => {
      try {
        return parse(text);
      } catch (error) {
        if (!isProblem(error)) throw error;
        context.addIssue({ code: 'custom', message: error.details.detail ?? 'invalid' });
        return z.NEVER;
      }
    })
    .describe(meaning);
}

export const FolderField = parsed(parseFolderName, 'Maildir++ name, levels separated by a dot.');

const filterShape = FolderQuery.pick({ q: true, unread: true, flagged: true, since: true, before: true }).extend({
  all: z.literal(true).optional().describe('Every message of the folder; stands alone.'),
});

const Filter = filterShape.superRefine(({ all, q, ...others }, context) => {
  const criteria = [q === '' ? undefined : q, ...Object.values(others)].filter((value) => value !== undefined).length;
  if ((all === true) !== criteria > 0) return;
  const message = all === true ? 'all stands alone' : 'must name a criterion, or all: true';
  context.addIssue({ code: 'custom', message });
});

/** A filter in one form field: the query of the folder's list. */
const WrittenFilter = z
  .string()
  .max(2000)
  .transform((text, context) => {
    if (text === '') return undefined;
    const words: Readonly<Record<string, boolean>> = { true: true, false: false };
    const fields = [...new URLSearchParams(text)].map(([name, value]): [string, string | boolean] => [
      name,
      name === 'q' ? value : (words[value] ?? value),
    ]);
    const result = Filter.safeParse(Object.fromEntries(fields));
    if (result.success) return result.data;
    context.addIssue({ code: 'custom', message: result.error.issues[0]?.message ?? 'invalid' });
    return z.NEVER;
  });

/** Selects messages by ids or by a filter, exactly one of them. */
export const messageSelection = {
  messageIds: z
    .array(parsed(parseMessageId, 'Unique name of a message, without flags.'))
    .min(1)
    .optional()
    .describe(`At most ${maxIds} ids; one that occurs twice counts once.`),
  filter: z.union([Filter, WrittenFilter]).optional().describe('Messages that fit, instead of ids.'),
  expect: z.int().min(0).optional().describe('How many must fit the filter; another number is 409.'),
  dryRun: z.boolean().optional().describe('Only count, and show some of them.'),
};

interface Chosen {
  readonly messageIds?: readonly string[] | undefined;
  readonly filter?: MessageFilter | undefined;
}

/** For `superRefine` of a body with these fields. */
export function oneSelector({ messageIds, filter }: Chosen, context: z.RefinementCtx): void {
  if ((messageIds === undefined) !== (filter === undefined)) return;
  const message =
    filter === undefined
      ? 'select at least one message, by messageIds or a filter'
      : 'name messageIds or a filter, not both';
  context.addIssue({ code: 'custom', path: ['messageIds'], message });
}

/** Selected messages. */
interface Selection {
  readonly ids: readonly string[];
}

interface SelectionRequest extends Chosen {
  readonly expect?: number | undefined;
}

/** @throws Problem `not-found`, `too-large`, `conflict` when the number differs from the expected one, `invalid` */
export async function select(
  reader: StoreReader,
  mailbox: MailboxName,
  folder: FolderName,
  request: SelectionRequest,
): Promise<Selection> {
  const { messageIds, filter = {}, expect } = request;
  if (messageIds !== undefined) {
    if (messageIds.length > maxIds) throw problem('too-large', `One call takes ${maxIds} messages at most.`);
    return { ids: [...new Set(messageIds)] };
  }
  const { ids } = await reader.matching(mailbox, folder, filter);
  expectCount(ids.length, expect);
  return { ids };
}

/** @throws Problem `conflict` */
export function expectCount(count: number, expected: number | undefined): void {
  if (expected === undefined || expected === count) return;
  throw problem(
    'conflict',
    `You expected ${pluralize(expected, 'message')}, now there ${count === 1 ? 'is' : 'are'} ${count}. Look again first.`,
  );
}

/** Additional response fields of a dry run. */
export const previewAnswer = {
  dryRun: z.literal(true).optional(),
  sample: z.array(MessageSummaryAnswer).optional().describe(`At most ${sampleSize} of the messages.`),
};

/** The messages that would change. */
interface Preview {
  readonly dryRun: true;
  readonly count: number;
  readonly notFound: readonly string[];
  readonly sample: readonly MessageSummary[];
}

/** @throws Problem `not-found` */
export async function preview(
  reader: StoreReader,
  mailbox: MailboxName,
  folder: FolderName,
  ids: readonly string[],
): Promise<Preview> {
  const place = await reader.mailboxFolders.find(mailbox, folder);
  const { byId } = await reader.mailboxFolders.messages.locate(place, ids);
  const present = ids.filter((id) => byId.has(id));
  return {
    dryRun: true,
    count: present.length,
    notFound: ids.filter((id) => !byId.has(id)),
    sample: await reader.summaries(place, present.slice(0, sampleSize)),
  };
}

export const backField = z.string().max(2000).optional().describe('Page that a form goes on to.');
export const { messageIds, filter, expect } = messageSelection;

const SelectionBody = z
  .strictObject({
    action: z.enum(['move', 'delete', 'read', 'unread', 'flag', 'unflag']),
    toFolder: z
      .union([z.literal(''), FolderField])
      .optional()
      .describe('For move.'),
    messageIds,
    filter,
    expect,
    back: backField,
  })
  .superRefine(({ messageIds: ids, filter: all }, context) => {
    if (ids !== undefined || all !== undefined) return;
    context.addIssue({ code: 'custom', path: ['messageIds'], message: 'select at least one message' });
  });
type SelectionBody = z.output<typeof SelectionBody>;

interface Work {
  readonly mailbox: MailboxName;
  readonly folder: FolderName;
  readonly ids: readonly string[];
  readonly body: SelectionBody;
}

/** The form above a list of messages: one form for all actions on the selection. */
export function selectionEndpoint(deps: StoreDeps): AnyEndpoint {
  const { reader, names } = deps;
  return defineEndpoint({
    method: 'POST',
    path: `${folderPath}/selection`,
    summary: 'Move, delete, mark or flag the selected messages of a folder',
    group: mailboxesGroup,
    access: 'operate',
    params: schema.FolderParams,
    body: { kind: 'fields', limit: selectionBytes, schema: SelectionBody },
    answer: z.object({ action: z.string(), changed: z.int(), notFound: z.array(z.string()) }),
    async handle({ params, body: given, request }) {
      const body = onlySelector(given, request);
      const mailbox = await names.parse(params);
      const folder = folderOf(params);
      const { ids } = await select(reader, mailbox, folder, body);
      const work = { mailbox, folder, ids, body };
      const location = body.back ?? folderHref(names.describe(mailbox), folder.name);
      if (body.action === 'delete' && deletesForGood(folder) && !request.confirmed) {
        return askToDelete(request, work, location);
      }
      const { changed, notFound, notice, undo } = await carryOut(deps, work);
      const mailboxPage = mailboxHref(names.describe(mailbox));
      return respond({
        status: 200,
        model: { action: body.action, changed, notFound },
        location,
        notice:
          notFound.length === 0 ? notice : `${notice} ${pluralize(notFound.length, 'message')} were gone already.`,
        ...(undo !== undefined && undoMove(mailboxPage, undo, location)),
        audit: { action: `messages.${body.action}`, selector: { folder: folder.name }, counts: { changed } },
      });
    },
  });
}

/** Messages that were moved, by their ids in the other folder. */
interface MovedMessages {
  readonly from: FolderName;
  readonly to: FolderName;
  readonly newIds: Readonly<Record<string, string>>;
}

/** Moves of more messages cannot be undone by a form. */
const maxUndo = 1000;

/** A form beside the notice that moves the messages back. */
export function undoMove(
  mailbox: string,
  { from, to, newIds }: MovedMessages,
  back: string,
): Pick<Response, 'noticeAction'> {
  const messageIds = Object.values(newIds);
  if (messageIds.length === 0 || messageIds.length > maxUndo) return {};
  const fields = { fromFolder: to.name, toFolder: from.name, messageIds, back };
  return { noticeAction: { label: 'Undo', path: `${mailbox}/messages/move`, fields } };
}

/** "All in this list" on a page overrides individual ticks. */
function onlySelector(body: SelectionBody, { representation }: EndpointRequest): SelectionBody {
  if (body.messageIds === undefined || body.filter === undefined) return body;
  if (representation === 'html') return { ...body, messageIds: undefined };
  const message = 'name messageIds or a filter, not both';
  throw problem('invalid', { detail: `${message}.`, errors: [{ pointer: '/messageIds', message }] });
}

function askToDelete(request: EndpointRequest, { folder, ids, body }: Work, back: string) {
  const chosen =
    body.messageIds === undefined ? { filter: messageFilterQuery(body.filter ?? {}) } : { messageIds: ids };
  return ask(request, {
    question: `Delete ${pluralize(ids.length, 'message')} of ${folder.name} permanently?`,
    fields: { action: 'delete', ...chosen, expect: String(ids.length), back: body.back },
    label: 'Delete permanently',
    back,
  });
}

interface CarriedOut {
  readonly changed: number;
  readonly notFound: readonly string[];
  readonly notice: string;
  readonly undo?: MovedMessages;
}

async function carryOut(deps: StoreDeps, { mailbox, folder, ids, body }: Work): Promise<CarriedOut> {
  const { messages } = deps.editor;
  const { action, toFolder } = body;
  if (action === 'move') {
    if (toFolder === undefined || toFolder === '') {
      throw problem('invalid', { errors: [{ pointer: '/toFolder', message: 'choose a folder to move them to' }] });
    }
    const { moved, notFound, newIds } = await messages.move(mailbox, folder, toFolder, ids);
    const notice = `${pluralize(moved, 'message')} moved to ${toFolder.name}.`;
    return { changed: moved, notFound, notice, undo: { from: folder, to: toFolder, newIds } };
  }
  if (action === 'delete') {
    const { deleted, notFound, newIds } = await messages.discard(mailbox, folder, ids);
    const how = deletesForGood(folder) ? 'deleted permanently' : 'moved to Trash';
    const notice = `${pluralize(deleted, 'message')} ${how}.`;
    return { changed: deleted, notFound, notice, undo: { from: folder, to: trash, newIds } };
  }
  const { updated, notFound } = await messages.mark(mailbox, folder, ids, action);
  return { changed: updated, notFound, notice: `${pluralize(updated, 'message')} ${markedWords[action]}.` };
}

/** Participles for notices: "3 messages flagged". */
export const markedWords: Readonly<Record<FlagMark, string>> = {
  read: 'marked read',
  unread: 'marked unread',
  flag: 'flagged',
  unflag: 'unflagged',
};
