import { z } from 'zod';
import { isForm } from '../../../core/http/body.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import type { DraftChange } from '../drafts/draft.js';
import { listDrafts } from '../drafts/drafts.js';
import { attachFiles, attachmentEndpoints, detachFile } from './draft-attachments.js';
import {
  draftGroup,
  draftPath,
  type DraftDeps,
  draftsPath,
  type DraftWork,
  editorAgain,
  expectation,
  orConflict,
  draftPlace,
} from './draft-page.js';
import * as schema from './draft-query.js';
import { answerEndpoint } from './reply.js';
import { ListQuery, MailboxParams } from './store-query.js';
import { draftAnswer, draftHref, draftPage, draftsHref, messageHref, placesOf } from './view-model.js';

/** Drafts: list, write, attach, send. */
export function draftEndpoints(deps: DraftDeps): readonly AnyEndpoint[] {
  return [
    ...listEndpoints(deps),
    ...changeEndpoints(deps),
    ...endEndpoints(deps),
    ...attachmentEndpoints(deps),
    formEndpoint(deps),
    answerEndpoint(deps),
  ];
}

const rawTypes = ['message/rfc822', 'application/octet-stream'];

function listEndpoints(deps: DraftDeps): readonly AnyEndpoint[] {
  const { names, drafts } = deps;
  return [
    defineEndpoint({
      method: 'GET',
      path: draftsPath,
      summary: 'Drafts of a mailbox, newest first',
      group: draftGroup,
      access: 'operate',
      answer: schema.DraftsAnswer,
      params: MailboxParams,
      query: ListQuery,
      view: 'drafts.njk',
      async handle({ params, query, request }) {
        const mailbox = await names.parse(params);
        const page = await listDrafts(deps, mailbox, query);
        if (request.representation !== 'html') return respond<object>({ model: page });
        const identity = names.describe(mailbox);
        const items = page.items.map((item) => ({ ...item, href: draftHref(identity, item.draftId) }));
        return respond<object>({ model: { ...page, items, ...placesOf(identity), listPath: request.listPath } });
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: draftPath,
      conditions: ['If-None-Match'],
      summary: 'A draft with its fields and attachments',
      group: draftGroup,
      access: 'operate',
      answer: schema.DraftAnswer,
      params: schema.DraftParams,
      cache: 'no-store',
      view: 'draft.njk',
      async handle({ params, request }) {
        const { mailbox, draftId } = await draftPlace(deps, params);
        const draft = await drafts.read(mailbox, draftId);
        if (request.representation !== 'html') return respond<object>({ model: draftAnswer(draft), etag: draft.tag });
        return respond<object>({ model: draftPage(names.describe(mailbox), draft) });
      },
    }),
  ];
}

function changeEndpoints(deps: DraftDeps): readonly AnyEndpoint[] {
  const { names, drafts } = deps;
  return [
    defineEndpoint({
      method: 'POST',
      path: draftsPath,
      success: [201],
      summary: 'Begin a draft, from fields or from a raw message',
      group: draftGroup,
      access: 'operate',
      answer: schema.DraftAnswer,
      params: MailboxParams,
      body: { kind: 'either', schema: schema.DraftBody, types: rawTypes },
      idempotent: true,
      cache: 'no-store',
      async handle({ params, body, request }) {
        const mailbox = await names.parse(params);
        const draft = await drafts.create(mailbox, changeOf(body, request));
        const location = draftHref(names.describe(mailbox), draft.draftId);
        const audit = { action: 'draft created', selector: draft.draftId };
        return respond<object>({ model: draftAnswer(draft), status: 201, location, etag: draft.tag, audit });
      },
    }),
    defineEndpoint({
      method: 'PUT',
      path: draftPath,
      conditions: ['If-Match'],
      summary: 'Save a draft. Attachments stay, unless a raw message replaces everything',
      group: draftGroup,
      access: 'operate',
      answer: schema.DraftAnswer,
      params: schema.DraftParams,
      body: { kind: 'either', schema: schema.DraftBody, types: rawTypes },
      again: editorAgain(deps),
      cache: 'no-store',
      handle: (work) => saveDraft(deps, work),
    }),
  ];
}

async function saveDraft(deps: DraftDeps, { params, body, request }: DraftWork) {
  const { names, drafts } = deps;
  const { mailbox, draftId } = await draftPlace(deps, params);
  const identity = names.describe(mailbox);
  const expected = expectation(request, body?.version);
  return orConflict(deps, { mailbox, identity, draftId, body, request }, async () => {
    const draft = await drafts.update(mailbox, draftId, changeOf(body, request), expected);
    return respond<object>({
      model: draftAnswer(draft),
      etag: draft.tag,
      location: draftHref(identity, draftId),
      notice: 'Saved.',
      audit: { action: 'draft saved', selector: draftId },
    });
  });
}

function changeOf(body: schema.DraftInput | undefined, request: EndpointRequest): DraftChange {
  if (request.stream !== undefined) return { kind: 'raw', content: request.stream as AsyncIterable<Buffer> };
  const isRaw = rawTypes.some((type) => request.contentType?.toLowerCase().startsWith(type) === true);
  if (isRaw) throw problem('bad-request', 'The message is empty.');
  // A form has no field for HTML.
  const keepHtml = isForm((request.contentType ?? '').split(';', 1).join('').trim().toLowerCase());
  return { kind: 'fields', fields: schema.fieldsOf(body ?? {}), keepHtml };
}

function endEndpoints(deps: DraftDeps): readonly AnyEndpoint[] {
  const { names, drafts } = deps;
  return [
    defineEndpoint({
      method: 'DELETE',
      path: draftPath,
      conditions: ['If-Match'],
      summary: 'Discard a draft',
      group: draftGroup,
      access: 'operate',
      params: schema.DraftParams,
      confirm: 'Discard this draft, with its attachments? It cannot be brought back.',
      async handle({ params, request }) {
        const { mailbox, draftId } = await draftPlace(deps, params);
        await drafts.remove(mailbox, draftId, expectation(request, undefined));
        return respond<object>({
          model: { draftId },
          location: draftsHref(names.describe(mailbox)),
          notice: 'The draft is discarded.',
          audit: { action: 'draft discarded', selector: draftId },
        });
      },
    }),
    defineEndpoint({
      method: 'POST',
      path: `${draftPath}/send`,
      conditions: ['If-Match'],
      success: [202],
      summary: 'Send a draft. It moves to Sent',
      group: draftGroup,
      access: 'operate',
      answer: schema.SentAnswer,
      params: schema.DraftParams,
      body: { kind: 'fields', schema: schema.DraftBody },
      again: editorAgain(deps),
      idempotent: true,
      cache: 'no-store',
      handle: (work) => sendDraft(deps, work),
    }),
  ];
}

async function sendDraft(deps: DraftDeps, { params, body, request }: DraftWork) {
  const { mailbox, draftId } = await draftPlace(deps, params);
  const identity = deps.names.describe(mailbox);
  const along = { fields: schema.fieldsAlong(body), expected: expectation(request, body?.version) };
  return orConflict(deps, { mailbox, identity, draftId, body, request }, async () => {
    const { sentId, uid } = await deps.sending.send(mailbox, draftId, along, request.remoteAddress);
    const location = uid === null ? messageHref(identity, 'Sent', sentId) : `/client/queue/${encodeURIComponent(uid)}`;
    return respond<object>({
      status: 202,
      model: { uid, draftId, sentId },
      location,
      notice: uid === null ? 'Sent.' : 'Sent: it is in the queue for recipients elsewhere.',
      audit: { action: 'draft sent', selector: draftId },
    });
  });
}

const operations = /^(?:save|send|attach|remove:(.{1,200}))$/;
const FormBody = schema.DraftBody.extend({
  operation: z
    .string()
    .regex(operations, 'must be save, send, attach or remove:ID')
    .default('save')
    .describe('Of the button: save, send, attach, or remove: with the id of an attachment.'),
});

/** "Attach" reads a chosen file as a file; other buttons, and forms without its content, see its name as a field. */
function formFields({ fields, files }: EndpointRequest): Readonly<Record<string, unknown>> {
  const { filename = '' } = files.find((file) => file.filename !== '') ?? {};
  return fields['operation'] === 'attach' ? fields : { ...fields, files: filename };
}

/** Browsers such as w3m ignore `formaction`: the name and value of the button identify the action. */
function formEndpoint(deps: DraftDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: draftPath,
    conditions: ['If-Match'],
    success: [200, 201, 202],
    summary: 'The form of the editor: the action of its button',
    group: draftGroup,
    access: 'operate',
    params: schema.DraftParams,
    body: { kind: 'either', schema: FormBody, types: ['multipart/form-data'] },
    again: editorAgain(deps),
    cache: 'no-store',
    async handle({ params, body, request }) {
      const { operation, ...fields } = body ?? schema.readDraftFields(FormBody, formFields(request));
      const work = { params, body: fields, request };
      const attachmentId = operations.exec(operation)?.[1];
      if (attachmentId !== undefined) return detachFile(deps, { ...work, params: { ...params, attachmentId } });
      if (operation === 'send') return sendDraft(deps, work);
      return operation === 'attach' ? attachFiles(deps, work, undefined) : saveDraft(deps, work);
    },
  });
}
