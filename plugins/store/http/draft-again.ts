import { type RefusedForm, respond, type Response } from '../../../core/http/endpoint.js';
import { draftPage, type EditorFields } from '../drafts/draft-model.js';
import { type DraftSite, placeOf } from './draft-site.js';

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
