import type { z } from 'zod';
import { namesTag } from '../../../core/http/entity-tag.js';
import type { EndpointRequest } from '../../../core/http/endpoint.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { parseDraftId } from '../drafts/draft-name.js';
import type { DraftInput, DraftParams } from '../drafts/draft-query.js';
import type { DraftSending } from '../drafts/draft-sending.js';
import type { DraftShelf } from '../drafts/draft-shelf.js';
import type { Expectation } from '../drafts/draft.js';
import type { Drafts } from '../drafts/drafts.js';
import type { MailboxNames } from '../maildir/mailbox-names.js';
import type { StoreReader } from '../messages/store-reader.js';

/** What the endpoints of drafts stand on. */
export interface DraftSite {
  readonly drafts: Drafts;
  readonly shelf: DraftShelf;
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
