import { z } from 'zod';
import { pluralize } from '../../../core/text/format.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import { ask } from '../../../core/http/question.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { problem } from '../../../core/problem.js';
import type { FolderName } from '../folders/folder-name.js';
import { deletesForGood } from '../messages/message-editor.js';
import { FolderField, select, selectionBytes, selectionFields, writtenFilter } from '../messages/message-selection.js';
import { markedWords } from './message-endpoints.js';
import { folderHref } from './page-model.js';
import * as schema from './store-query.js';
import { folderOf, folderPath, group, type StoreSite } from './store-endpoints.js';

const { messageIds, filter, expect } = selectionFields;

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
    back: z.string().max(2000).optional().describe('Page that a form goes on to.'),
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

/** What the bar above a list of messages sends: one form for all that can be done with the chosen ones. */
export function selectionEndpoint(site: StoreSite): AnyEndpoint {
  const { reader, names } = site;
  return defineEndpoint({
    method: 'POST',
    path: `${folderPath}/selection`,
    summary: 'Move, delete, mark or flag the chosen messages of a folder',
    group,
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
      const { changed, notFound, notice } = await carryOut(site, work);
      return respond({
        status: 200,
        model: { action: body.action, changed, notFound },
        location,
        notice:
          notFound.length === 0 ? notice : `${notice} ${pluralize(notFound.length, 'message')} were gone already.`,
        audit: { action: `messages.${body.action}`, selector: { folder: folder.name }, counts: { changed } },
      });
    },
  });
}

/** Whoever chooses all of a list on its page need not take the ticks away. */
function onlySelector(body: SelectionBody, { representation }: EndpointRequest): SelectionBody {
  if (body.messageIds === undefined || body.filter === undefined) return body;
  if (representation === 'html') return { ...body, messageIds: undefined };
  const message = 'name messageIds or a filter, not both';
  throw problem('invalid', { detail: `${message}.`, errors: [{ pointer: '/messageIds', message }] });
}

function askToDelete(request: EndpointRequest, { folder, ids, body }: Work, back: string) {
  const chosen = body.messageIds === undefined ? { filter: writtenFilter(body.filter ?? {}) } : { messageIds: ids };
  return ask(request, {
    question: `Delete ${pluralize(ids.length, 'message')} of ${folder.name} for good?`,
    fields: { action: 'delete', ...chosen, expect: String(ids.length), back: body.back },
    label: 'Delete for good',
    back,
  });
}

async function carryOut(site: StoreSite, { mailbox, folder, ids, body }: Work) {
  const { messages } = site.editor;
  const { action, toFolder } = body;
  if (action === 'move') {
    if (toFolder === undefined || toFolder === '') {
      throw problem('invalid', { errors: [{ pointer: '/toFolder', message: 'choose a folder to move them to' }] });
    }
    const { moved, notFound } = await messages.move(mailbox, folder, toFolder, ids);
    return { changed: moved, notFound, notice: `${pluralize(moved, 'message')} moved to ${toFolder.name}.` };
  }
  if (action === 'delete') {
    const { deleted, notFound } = await messages.discard(mailbox, folder, ids);
    const how = deletesForGood(folder) ? 'deleted for good' : 'moved to Trash';
    return { changed: deleted, notFound, notice: `${pluralize(deleted, 'message')} ${how}.` };
  }
  const { updated, notFound } = await messages.mark(mailbox, folder, ids, action);
  return { changed: updated, notFound, notice: `${pluralize(updated, 'message')} ${markedWords[action]}.` };
}
