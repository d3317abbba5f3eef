import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import { isProblem } from '../../../core/problem.js';
import { draftPage, writtenFields } from '../drafts/draft-model.js';
import { type DraftInput, fieldsOf } from '../drafts/draft-query.js';
import type { MailboxIdentity } from '../maildir/mailbox-names.js';
import type { DraftSite } from './draft-site.js';

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
