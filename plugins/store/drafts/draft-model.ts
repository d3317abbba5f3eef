import { type Correspondent, writeCorrespondent } from '../mime/recipient.js';
import type { DraftFields } from './draft-composition.js';
import type { Attachment, DraftContent } from './draft-content.js';
import type { Draft } from './draft.js';
import type { MailboxIdentity } from '../maildir/mailbox-names.js';
import { draftHref, draftsHref, mailboxHref } from '../http/page-model.js';

export { draftHref, draftsHref };

const encode = encodeURIComponent;

export function messageHref(mailbox: MailboxIdentity, folder: string, id: string): string {
  return `${mailboxHref(mailbox)}/folders/${encode(folder)}/messages/${encode(id)}`;
}

/** What JSON says of a draft. */
export function draftAnswer({ draftId, id, savedAt, size, content }: Draft) {
  const { from, to, cc, bcc, subject, text, html, date, messageId, inReplyTo, references, attachments } = content;
  return {
    draftId,
    id,
    savedAt,
    size,
    from,
    to,
    cc,
    bcc,
    subject,
    text,
    html,
    date,
    internetMessageId: messageId,
    inReplyTo,
    references,
    attachments: attachments.map(attachmentAnswer),
  };
}

export function attachmentAnswer({ attachmentId, filename, contentType, size }: Attachment): Attachment {
  return { attachmentId, filename, contentType, size };
}

/** What an editor shows in its fields. */
export interface EditorFields {
  readonly from: string;
  readonly to: string;
  readonly cc: string;
  readonly bcc: string;
  readonly subject: string;
  readonly text: string;
  readonly inReplyTo: string;
  readonly references: string;
}

export function editorFields(content: DraftContent): EditorFields {
  const { from, to, cc, bcc, subject, text, inReplyTo, references } = content;
  return {
    from: from === null ? '' : writeCorrespondent(from),
    to: to.map(writeCorrespondent).join(', '),
    cc: cc.map(writeCorrespondent).join(', '),
    bcc: bcc.map(writeCorrespondent).join(', '),
    subject,
    text: text ?? '',
    inReplyTo: inReplyTo ?? '',
    references: references.join(' '),
  };
}

/** What somebody has just written, for the fields of an editor. */
export function writtenFields(fields: DraftFields): EditorFields {
  const people = (list: readonly Correspondent[]): string =>
    list.map(({ name, address }) => writeCorrespondent({ name, address: address.address })).join(', ');
  return {
    from: people(fields.from === null ? [] : [fields.from]),
    to: people(fields.to),
    cc: people(fields.cc),
    bcc: people(fields.bcc),
    subject: fields.subject,
    text: fields.text ?? '',
    inReplyTo: fields.inReplyTo ?? '',
    references: fields.references.join(' '),
  };
}

export function draftPage(mailbox: MailboxIdentity, draft: Draft) {
  const path = draftHref(mailbox, draft.draftId);
  return {
    ...placesOf(mailbox),
    draftId: draft.draftId,
    path,
    version: draft.tag,
    savedAt: draft.savedAt,
    size: draft.size,
    fields: editorFields(draft.content),
    hasHtml: draft.content.html !== null,
    isWhole: !draft.content.truncated,
    attachments: draft.content.attachments.map((attachment) => ({
      ...attachmentAnswer(attachment),
      href: `${path}/attachments/${encode(attachment.attachmentId)}`,
    })),
    rawHref: `${messageHref(mailbox, 'Drafts', draft.id)}?format=rfc822`,
  };
}

export function placesOf(mailbox: MailboxIdentity) {
  return {
    ...mailbox,
    mailboxHref: mailboxHref(mailbox),
    domainHref: `/store/${encode(mailbox.domain)}`,
    draftsHref: draftsHref(mailbox),
  };
}
