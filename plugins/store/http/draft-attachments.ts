import { Readable } from 'node:stream';
import type { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import { attachmentAnswer, draftHref } from './view-model.js';
import { type AttachmentUpload, parseAttachmentLabel, tagOf } from '../drafts/draft.js';
import * as schema from './draft-query.js';
import {
  draftGroup,
  draftPath,
  type DraftDeps,
  type DraftWork,
  editorAgain,
  expectation,
  orConflict,
  draftPlace,
} from './draft-page.js';

const attachmentsPath = `${draftPath}/attachments`;
const attachmentPath = `${attachmentsPath}/{attachmentId}`;

export function attachmentEndpoints(deps: DraftDeps): readonly AnyEndpoint[] {
  return [addEndpoint(deps), readEndpoint(deps), removeEndpoint(deps)];
}

function addEndpoint(deps: DraftDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: attachmentsPath,
    conditions: ['If-Match'],
    success: [201],
    summary: 'Add attachments: one as the body with ?filename=, or several as multipart/form-data',
    group: draftGroup,
    access: 'operate',
    answer: schema.AttachmentsAnswer,
    params: schema.DraftParams,
    query: schema.AttachmentsQuery,
    body: { kind: 'raw', types: ['*/*'] },
    again: editorAgain(deps),
    cache: 'no-store',
    handle: ({ params, query, request }) =>
      attachFiles(deps, { params, body: schema.readEditorFields(request.fields), request }, query.filename),
  });
}

export async function attachFiles(deps: DraftDeps, { params, body, request }: DraftWork, filename: string | undefined) {
  const { mailbox, draftId } = await draftPlace(deps, params);
  const identity = deps.names.describe(mailbox);
  const along = { fields: schema.fieldsAlong(body), expected: expectation(request, body?.version) };
  const uploads = uploadsOf(request, filename);
  return orConflict(deps, { mailbox, identity, draftId, body, request }, async () => {
    const { draft, added } = await deps.drafts.attach(mailbox, draftId, uploads, along);
    return respond<object>({
      status: 201,
      model: { attachments: added.map(attachmentAnswer) },
      location: draftHref(identity, draftId),
      etag: draft.tag,
      notice: added.length === 1 ? 'One file is attached.' : `${added.length} files are attached.`,
      audit: { action: 'attachments added', selector: draftId, counts: { added: added.length } },
    });
  });
}

function uploadsOf(request: EndpointRequest, filename: string | undefined): readonly AttachmentUpload[] {
  const { stream, files, contentType } = request;
  if (stream !== undefined) {
    return [
      { ...parseAttachmentLabel(filename ?? 'attachment', contentType), open: () => stream as AsyncIterable<Buffer> },
    ];
  }
  // What a browser sends for a field without a file.
  const chosen = files.filter((file) => file.filename !== '' || file.size > 0);
  if (chosen.length === 0) throw problem('invalid', 'Choose a file first.');
  return chosen.map((file) => ({
    ...parseAttachmentLabel(file.filename === '' ? 'attachment' : file.filename, file.contentType),
    open: () => file.open() as AsyncIterable<Buffer>,
  }));
}

function readEndpoint(deps: DraftDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'GET',
    path: attachmentPath,
    conditions: ['If-None-Match'],
    summary: 'An attachment of a draft',
    group: draftGroup,
    access: 'operate',
    params: schema.AttachmentParams,
    query: schema.AttachmentQuery,
    produces: ['bytes'],
    cache: 'no-store',
    async handle({ params }) {
      const { mailbox, draftId } = await draftPlace(deps, params);
      const { bytes, contentType, filename, id } = await deps.drafts.attachment(mailbox, draftId, params.attachmentId);
      return respond<object>({
        etag: `${tagOf(id)}.${params.attachmentId}`,
        bytes: {
          source: {
            size: bytes.length,
            open: (start, end) => Readable.from([bytes.subarray(start, end + 1)]),
          },
          contentType,
          filename,
          disposition: 'attachment',
        },
      });
    },
  });
}

function removeEndpoint(deps: DraftDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'DELETE',
    path: attachmentPath,
    conditions: ['If-Match'],
    summary: 'Remove an attachment from a draft',
    group: draftGroup,
    access: 'operate',
    answer: schema.DraftAnswer.pick({ draftId: true, attachments: true }),
    params: schema.AttachmentParams,
    body: { kind: 'fields', schema: schema.DraftBody },
    again: editorAgain(deps),
    cache: 'no-store',
    handle: (work) => detachFile(deps, work),
  });
}

interface AttachmentWork extends DraftWork {
  readonly params: z.output<typeof schema.AttachmentParams>;
}

export async function detachFile(deps: DraftDeps, { params, body, request }: AttachmentWork) {
  const { mailbox, draftId } = await draftPlace(deps, params);
  const identity = deps.names.describe(mailbox);
  const along = { fields: schema.fieldsAlong(body), expected: expectation(request, body?.version) };
  return orConflict(deps, { mailbox, identity, draftId, body, request }, async () => {
    const draft = await deps.drafts.detach(mailbox, draftId, params.attachmentId, along);
    return respond<object>({
      model: { draftId, attachments: draft.content.attachments.map(attachmentAnswer) },
      location: draftHref(identity, draftId),
      etag: draft.tag,
      notice: 'The attachment is removed.',
      audit: { action: 'attachment removed', selector: draftId },
    });
  });
}
