import { z } from 'zod';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import {
  type AnyEndpoint,
  defineEndpoint,
  type EndpointRequest,
  type RefusedForm,
  respond,
  type Response,
} from '../../../core/http/endpoint.js';
import { namesTag } from '../../../core/http/entity-tag.js';
import { isProblem, problem } from '../../../core/problem.js';
import { type DraftChange, type Expectation, parseDraftId } from '../drafts/draft.js';
import type { DraftSending } from '../drafts/draft-sending.js';
import type { DraftShelf } from '../drafts/draft-store.js';
import { type Drafts, listDrafts } from '../drafts/drafts.js';
import type { MailboxIdentity, MailboxNames } from '../maildir/mailbox-names.js';
import type { StoreReader } from '../messages/store-reader.js';
import { attachFiles, attachmentEndpoints, detachFile } from './draft-attachments.js';
import {
  draftAnswer,
  draftHref,
  draftPage,
  draftsHref,
  type EditorFields,
  messageHref,
  placesOf,
  writtenFields,
} from './view-model.js';
import * as schema from './draft-query.js';
import { type DraftInput, type DraftParams, fieldsOf } from './draft-query.js';
import { answerEndpoint } from './reply.js';
import { ListQuery, MailboxParams } from './store-query.js';

/** Drafts: list, write, attach, send. */
export function draftEndpoints(site: DraftSite): readonly AnyEndpoint[] {
  return [
    ...listEndpoints(site),
    ...changeEndpoints(site),
    ...endEndpoints(site),
    ...attachmentEndpoints(site),
    formEndpoint(site),
    answerEndpoint(site),
  ];
}

const rawTypes = ['message/rfc822', 'application/octet-stream'];

function listEndpoints(site: DraftSite): readonly AnyEndpoint[] {
  const { names, drafts } = site;
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
        const page = await listDrafts(site, mailbox, query);
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
        const { mailbox, draftId } = await placeOf(site, params);
        const draft = await drafts.read(mailbox, draftId);
        if (request.representation !== 'html') return respond<object>({ model: draftAnswer(draft), etag: draft.tag });
        return respond<object>({ model: draftPage(names.describe(mailbox), draft) });
      },
    }),
  ];
}

function changeEndpoints(site: DraftSite): readonly AnyEndpoint[] {
  const { names, drafts } = site;
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
      again: editorAgain(site),
      cache: 'no-store',
      handle: (work) => saveDraft(site, work),
    }),
  ];
}

async function saveDraft(site: DraftSite, { params, body, request }: DraftWork) {
  const { names, drafts } = site;
  const { mailbox, draftId } = await placeOf(site, params);
  const identity = names.describe(mailbox);
  const expected = expectation(request, body?.version);
  return orConflict(site, { mailbox, identity, draftId, body, request }, async () => {
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
  return { kind: 'fields', fields: schema.fieldsOf(body ?? {}), keepHtml: request.representation === 'html' };
}

function endEndpoints(site: DraftSite): readonly AnyEndpoint[] {
  const { names, drafts } = site;
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
        const { mailbox, draftId } = await placeOf(site, params);
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
      again: editorAgain(site),
      idempotent: true,
      cache: 'no-store',
      handle: (work) => sendDraft(site, work),
    }),
  ];
}

async function sendDraft(site: DraftSite, { params, body, request }: DraftWork) {
  const { mailbox, draftId } = await placeOf(site, params);
  const identity = site.names.describe(mailbox);
  const along = { fields: schema.fieldsAlong(body), expected: expectation(request, body?.version) };
  return orConflict(site, { mailbox, identity, draftId, body, request }, async () => {
    const { sentId, uid } = await site.sending.send(mailbox, draftId, along, request.remoteAddress);
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

/** A file that was chosen is no field for Attach; for the others it is one, as it is when the form comes without its content. */
function formFields({ fields, files }: EndpointRequest): Readonly<Record<string, unknown>> {
  const { filename = '' } = files.find((file) => file.filename !== '') ?? {};
  return fields['operation'] === 'attach' ? fields : { ...fields, files: filename };
}

/** Browsers such as w3m know no `formaction`: the name and the value of the button say what the form is for. */
function formEndpoint(site: DraftSite): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: draftPath,
    conditions: ['If-Match'],
    success: [200, 201, 202],
    summary: 'The form of the editor: what its button says',
    group: draftGroup,
    access: 'operate',
    params: schema.DraftParams,
    body: { kind: 'either', schema: FormBody, types: ['multipart/form-data'] },
    again: editorAgain(site),
    cache: 'no-store',
    async handle({ params, body, request }) {
      const { operation, ...fields } = body ?? schema.readFields(FormBody, formFields(request));
      const work = { params, body: fields, request };
      const attachmentId = operations.exec(operation)?.[1];
      if (attachmentId !== undefined) return detachFile(site, { ...work, params: { ...params, attachmentId } });
      if (operation === 'send') return sendDraft(site, work);
      return operation === 'attach' ? attachFiles(site, work, undefined) : saveDraft(site, work);
    },
  });
}

interface DraftPath {
  readonly domain: string;
  readonly user: string;
  readonly draftId: string;
}

type Written = RefusedForm<unknown, unknown>['fields'];

/** The editor, with what somebody has written into it and what is wrong with that. */
export function editorAgain(site: DraftSite) {
  return async ({ params, fields, problem }: RefusedForm<DraftPath, unknown>): Promise<Response> => {
    const { mailbox, draftId } = await placeOf(site, params);
    const page = draftPage(site.names.describe(mailbox), await site.drafts.read(mailbox, draftId));
    const { detail, errors = [] } = problem.details;
    const known = new Set([...Object.keys(page.fields), 'files'].map((name) => `/${name}`));
    const model = {
      ...page,
      version: textOf(fields, 'version') ?? page.version,
      fields: writtenOver(page.fields, fields),
      refusal: {
        detail: errors.some(({ pointer }) => known.has(pointer)) ? 'Nothing was saved yet.' : detail,
        fields: Object.fromEntries(errors.map(({ pointer, message }) => [pointer.replace('/', ''), message])),
        others: errors.filter(({ pointer }) => !known.has(pointer)),
      },
    };
    return respond<unknown>({ view: 'store/draft.njk', model });
  };
}

function textOf(fields: Written, name: string): string | undefined {
  const value = fields[name];
  return typeof value === 'string' ? value : undefined;
}

function writtenOver(saved: EditorFields, fields: Written): EditorFields {
  const { from, to, cc, bcc, subject, text, inReplyTo, references } = saved;
  const written = (name: string, before: string): string => textOf(fields, name) ?? before;
  return {
    from: written('from', from),
    to: written('to', to),
    cc: written('cc', cc),
    bcc: written('bcc', bcc),
    subject: written('subject', subject),
    text: written('text', text).replaceAll('\r\n', '\n'),
    inReplyTo: written('inReplyTo', inReplyTo),
    references: written('references', references),
  };
}

interface Attempt {
  readonly mailbox: MailboxName;
  readonly identity: MailboxIdentity;
  readonly draftId: string;
  readonly body: DraftInput | undefined;
  readonly request: EndpointRequest;
}

/** A person whose version is not the present one sees both; a script gets the 412. */
export async function orConflict<T>({ drafts }: DraftSite, attempt: Attempt, task: () => Promise<T>) {
  try {
    return await task();
  } catch (error) {
    const { mailbox, identity, draftId, body, request } = attempt;
    if (!isProblem(error) || error.problem !== 'precondition-failed' || request.representation !== 'html') throw error;
    const theirs = draftPage(identity, await drafts.read(mailbox, draftId));
    const mine = body === undefined ? theirs.fields : writtenFields(fieldsOf(body));
    return respond<object>({
      status: 412,
      view: 'store/draft-conflict.njk',
      model: { ...theirs, draftVersion: theirs.version, mine },
    });
  }
}

/** What the endpoints of drafts stand on. */
export interface DraftSite {
  readonly drafts: Drafts;
  readonly shelf: DraftShelf;
  readonly sending: DraftSending;
  readonly reader: StoreReader;
  readonly names: MailboxNames;
}

export const draftGroup = 'Drafts';
const draftsPath = '/store/{domain}/{user}/drafts';
export const draftPath = `${draftsPath}/{draftId}`;

interface DraftPlace {
  readonly mailbox: MailboxName;
  readonly draftId: string;
}

export async function placeOf(
  { names }: DraftSite,
  params: { readonly domain: string; readonly user: string; readonly draftId: string },
): Promise<DraftPlace> {
  const draftId = parseDraftId(params.draftId);
  return { mailbox: await names.parse(params), draftId };
}

/** `If-Match`, or what a form says instead of it. */
export function expectation({ ifMatch }: EndpointRequest, version: unknown): Expectation | undefined {
  if (ifMatch !== undefined) return (tag) => namesTag(ifMatch, tag);
  return typeof version === 'string' && version !== '' ? (tag) => tag === version : undefined;
}

/** What an endpoint of a draft is asked for. */
export interface DraftWork {
  readonly params: z.output<typeof DraftParams>;
  readonly body: DraftInput | undefined;
  readonly request: EndpointRequest;
}
