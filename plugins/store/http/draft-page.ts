import type { z } from 'zod';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { type EndpointRequest, type RefusedForm, respond, type Response } from '../../../core/http/endpoint.js';
import { namesTag } from '../../../core/http/response.js';
import { isProblem } from '../../../core/problem.js';
import type { DraftSending } from '../drafts/draft-sending.js';
import type { DraftStore } from '../drafts/draft-store.js';
import { type Expectation, parseDraftId } from '../drafts/draft.js';
import type { Drafts } from '../drafts/drafts.js';
import type { MailboxIdentity, MailboxNames } from '../maildir/mailboxes.js';
import type { StoreReader } from '../messages/store-reader.js';
import { type DraftInput, type DraftParams, fieldsOf } from './draft-query.js';
import { draftPage, type EditorFields, writtenFields } from './view-model.js';

interface DraftPath {
  readonly domain: string;
  readonly user: string;
  readonly draftId: string;
}

type Written = RefusedForm<unknown, unknown>['fields'];

/** The editor with the user's input and its errors. */
export function editorAgain(deps: DraftDeps) {
  return async ({ params, fields, problem }: RefusedForm<DraftPath, unknown>): Promise<Response> => {
    const { mailbox, draftId } = await draftPlace(deps, params);
    const page = draftPage(deps.names.describe(mailbox), await deps.drafts.read(mailbox, draftId));
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

/** A user with an outdated version sees both versions; a script gets the 412. */
export async function orConflict<T>({ drafts }: DraftDeps, attempt: Attempt, task: () => Promise<T>) {
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

/** Dependencies of the draft endpoints. */
export interface DraftDeps {
  readonly drafts: Drafts;
  readonly store: DraftStore;
  readonly sending: DraftSending;
  readonly reader: StoreReader;
  readonly names: MailboxNames;
}

export const draftGroup = 'Drafts';

export const draftsPath = '/store/{domain}/{user}/drafts';

export const draftPath = `${draftsPath}/{draftId}`;

interface DraftPlace {
  readonly mailbox: MailboxName;
  readonly draftId: string;
}

export async function draftPlace(
  { names }: DraftDeps,
  params: { readonly domain: string; readonly user: string; readonly draftId: string },
): Promise<DraftPlace> {
  const draftId = parseDraftId(params.draftId);
  return { mailbox: await names.parse(params), draftId };
}

/** `If-Match`, or the form field for it. */
export function expectation({ ifMatch }: EndpointRequest, version: unknown): Expectation | undefined {
  if (ifMatch !== undefined) return (tag) => namesTag(ifMatch, tag);
  return typeof version === 'string' && version !== '' ? (tag) => tag === version : undefined;
}

/** Request for a draft. */
export interface DraftWork {
  readonly params: z.output<typeof DraftParams>;
  readonly body: DraftInput | undefined;
  readonly request: EndpointRequest;
}
