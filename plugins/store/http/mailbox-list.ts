import { problem } from '../../../core/problem.js';
import { mapBounded } from '../../../core/concurrency.js';
import type { OrderKey } from '../maildir/message-entry.js';
import { type Page, pageOf, type PageRequest } from '../maildir/page.js';
import type { StoreReader } from '../messages/store-reader.js';

export interface DomainSummary {
  readonly domain: string;
  readonly mailboxes: number;
}

export interface MailboxSummary {
  readonly user: string;
  readonly mailbox: string;
  readonly folders: number;
  readonly total: number;
  readonly unread: number;
  readonly size: number;
}

const byName = (a: OrderKey, b: OrderKey): number => (a.id === b.id ? 0 : a.id < b.id ? -1 : 1);
const mailboxesAtOnce = 4;

/** @param local domains that are listed even without a mailbox */
export async function listDomains(
  reader: StoreReader,
  local: readonly string[],
  request: PageRequest,
): Promise<Page<DomainSummary>> {
  const all = [...new Set([...(await reader.domains()), ...local])].sort();
  const page = pageOf(all.map(keyed), request, byName);
  const items = await mapBounded(page.items, mailboxesAtOnce, async ({ id: domain }) => {
    return { domain, mailboxes: (await reader.mailboxes(domain))?.length ?? 0 };
  });
  return { ...page, items };
}

/** @throws Problem `not-found` for an unknown domain */
export async function listMailboxes(
  reader: StoreReader,
  local: readonly string[],
  written: string,
  request: PageRequest,
): Promise<Page<MailboxSummary> & { readonly domain: string }> {
  const domain = reader.domainOf(written);
  const found = await reader.mailboxes(domain);
  if (found === undefined && !local.includes(domain)) throw problem('not-found', 'There is no such domain.');
  const names = new Map((found ?? []).map((name) => [name.user as string, name]));
  const page = pageOf([...names.keys()].map(keyed), request, byName);
  const items = await mapBounded(page.items, mailboxesAtOnce, async ({ id: user }) => {
    const name = names.get(user);
    const folders = name === undefined ? [] : await reader.folders(name).catch(() => []);
    return {
      user,
      mailbox: `${user}@${domain}`,
      folders: folders.length,
      total: folders.reduce((sum, folder) => sum + folder.total, 0),
      unread: folders.reduce((sum, folder) => sum + folder.unread, 0),
      size: folders.reduce((sum, folder) => sum + folder.size, 0),
    };
  });
  return { domain, ...page, items };
}

function keyed(id: string): OrderKey {
  return { receivedAt: 0, id };
}
