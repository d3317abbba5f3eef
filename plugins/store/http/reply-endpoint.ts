import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { beginAnswer } from '../messages/answering.js';
import { draftAnswer, draftHref } from '../drafts/draft-model.js';
import * as schema from '../drafts/draft-query.js';
import { parseFolderName } from '../folders/folder-name.js';
import { answerKinds } from './message-answer.js';
import { parseMessageId } from '../maildir/message-name.js';
import { MessageParams } from './store-query.js';
import { draftGroup, type DraftSite } from './draft-site.js';

/** The buttons of a message that begin a draft. */
export function answerEndpoint({ reader, drafts, names }: DraftSite): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: '/store/{domain}/{user}/folders/{folder}/messages/{messageId}/draft',
    success: [201],
    summary: 'Begin a draft that replies to a message, or forwards it with its attachments',
    group: draftGroup,
    access: 'operate',
    answer: schema.DraftAnswer,
    params: MessageParams,
    body: {
      kind: 'fields',
      schema: z.strictObject({ as: z.enum(answerKinds).describe('To its sender, to everybody, or to somebody else.') }),
    },
    idempotent: true,
    cache: 'no-store',
    async handle({ params, body }) {
      const folder = parseFolderName(params.folder);
      const id = parseMessageId(params.messageId);
      const mailbox = await names.parse(params);
      const draft = await beginAnswer({ reader, drafts }, { mailbox, folder, id }, body.as);
      return respond<object>({
        model: draftAnswer(draft),
        status: 201,
        location: draftHref(names.describe(mailbox), draft.draftId),
        etag: draft.tag,
        audit: { action: 'draft created', selector: draft.draftId },
      });
    },
  });
}
