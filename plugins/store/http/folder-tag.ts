import { setTimeout as wait } from 'node:timers/promises';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { EndpointRequest } from '../../../core/http/endpoint.js';
import { namesTag } from '../../../core/http/entity-tag.js';
import { problem } from '../../../core/problem.js';
import type { Condition } from '../folders/folder-editor.js';
import type { FolderName } from '../folders/folder-name.js';
import type { StoreSite } from './store-endpoints.js';

const tries = 4;
const waitMs = 60;

/** That the folder is as somebody has read it, who sent `If-Match`: `precondition-failed` else. */
export function asRead(
  site: StoreSite,
  mailbox: MailboxName,
  folder: FolderName,
  { ifMatch }: EndpointRequest,
): Condition | undefined {
  if (ifMatch === undefined) return undefined;
  return async () => {
    const version = await presentVersion(site, mailbox, folder);
    if (version !== undefined && (namesTag(ifMatch, version) || namesListOf(ifMatch, version))) return;
    throw problem('precondition-failed', 'The folder has changed since you read it. Read it again, then repeat.');
  };
}

async function presentVersion({ reader }: StoreSite, mailbox: MailboxName, folder: FolderName) {
  let version = await reader.version(mailbox, folder);
  // A state that is a moment old has no tag yet.
  for (let attempt = 1; version === undefined && attempt < tries; attempt++) {
    await wait(waitMs);
    version = await reader.version(mailbox, folder);
  }
  return version;
}

/** Lists have a tag for each of their queries: those of the present state begin alike, and any of them will do. */
function namesListOf(ifMatch: string, version: string): boolean {
  return ifMatch.split(',').some((tag) => tag.trim().replace(/^W\//, '').startsWith(`"${version}.`));
}
