import type { Directory, MailUser } from '../../core/contracts/directory.js';
import { entryStates } from '../../core/contracts/queue-entry.js';
import type { QueuedMail } from '../../core/contracts/relay-queue.js';
import type { Catalogue, Configuration, EffectiveValue } from '../../core/contracts/server.js';
import type { TracedMessage, Traces } from '../../core/contracts/traces.js';
import { addressOf } from './finder.js';

export const groupNames = ['traces', 'queue', 'users', 'settings', 'pages'] as const;
export type GroupName = (typeof groupNames)[number];

export interface FoundItem {
  readonly title: string;
  readonly href: string;
  readonly detail: string;
  /** ISO 8601. */
  readonly at: string | null;
  readonly states: readonly string[];
  /** A second page about it. */
  readonly also: { readonly title: string; readonly href: string } | null;
}

export interface FoundGroup {
  readonly name: GroupName;
  readonly title: string;
  readonly items: readonly FoundItem[];
  /** Null when only the first ones were looked for. */
  readonly total: number | null;
  /** Page with all of them. */
  readonly more: string | null;
}

export interface GroupSearch {
  readonly limit: number;
  /** Groups whose pages the account may not open are left out. */
  readonly mayOpen: (path: string) => boolean;
}

export interface SearchGroupsDeps {
  readonly catalogue: Pick<Catalogue, 'endpoints'>;
  readonly configuration: Pick<Configuration, 'effective'>;
  readonly directory?: Directory | undefined;
  readonly relayQueue?: Pick<QueuedMail, 'list'> | undefined;
  readonly traces?: Traces | undefined;
}

const maxDetail = 200;
const plain = { at: null, states: [], also: null };

/** Finds everything but the mail in mailboxes. */
export class SearchGroups {
  readonly #deps: SearchGroupsDeps;

  constructor(deps: SearchGroupsDeps) {
    this.#deps = deps;
  }

  /** Groups in which nothing was found are empty. @param only all groups if absent */
  async find(text: string, search: GroupSearch, only?: GroupName): Promise<readonly FoundGroup[]> {
    const finders: Readonly<Record<GroupName, () => Promise<FoundGroup | undefined> | FoundGroup | undefined>> = {
      traces: () => this.#traces(text, search),
      queue: () => this.#queue(text, search),
      users: () => this.#users(text, search),
      settings: () => this.#settings(text, search),
      pages: () => this.#pages(text, search),
    };
    const names = groupNames.filter((name) => only === undefined || name === only);
    const groups = await Promise.all(names.map(async (name) => finders[name]()));
    return groups.filter((group) => group !== undefined);
  }

  async #traces(text: string, { limit, mayOpen }: GroupSearch): Promise<FoundGroup | undefined> {
    const { traces } = this.#deps;
    if (traces === undefined || !mayOpen('/trace')) return undefined;
    // Traces have addresses and ids, no words.
    const found = /\s/.test(text) ? [] : await traces.find(text, { limit });
    const more = `/trace?address=${encodeURIComponent(text)}`;
    return { name: 'traces', title: 'Traces', items: found.map(traceItem), total: null, more };
  }

  async #queue(text: string, { limit, mayOpen }: GroupSearch): Promise<FoundGroup | undefined> {
    const { relayQueue } = this.#deps;
    if (relayQueue === undefined || !mayOpen('/client/queue/list')) return undefined;
    const { items, total } = await relayQueue.list({ filter: { q: text, state: entryStates }, limit });
    const found = items.map(({ uid, state, sender, recipients, subject, queuedAt }): FoundItem => {
      const way = `${sender ?? '<>'} → ${listed(recipients.map(({ address }) => address))}`;
      return {
        title: subject === '' ? way : subject,
        href: `/client/queue/${uid}`,
        detail: subject === '' ? uid : way,
        at: new Date(queuedAt).toISOString(),
        states: [state],
        also: null,
      };
    });
    const more = `/client/queue/list?state=all&q=${encodeURIComponent(text)}`;
    return { name: 'queue', title: 'Queue', items: found, total: typeof total === 'number' ? total : null, more };
  }

  async #users(text: string, search: GroupSearch): Promise<FoundGroup | undefined> {
    const { directory } = this.#deps;
    if (directory === undefined || !search.mayOpen('/users')) return undefined;
    const address = addressOf(text);
    const owner = address === undefined ? undefined : await directory.resolve(address);
    const words = wordsOf(text);
    const found = new Map<string, MailUser>(owner === undefined ? [] : [[owner.username, owner]]);
    for (const user of await directory.list()) {
      // Aliases are shown to those who may open the page of the user.
      const aliases = search.mayOpen(userHref(user)) ? user.aliases : [];
      if (hasAll([user.username, ...aliases].join(' '), words)) found.set(user.username, user);
    }
    const items = [...found.values()].slice(0, search.limit).map((user) => userItem(user, search.mayOpen));
    const more = `/users?q=${encodeURIComponent(text)}`;
    return { name: 'users', title: 'Users', items, total: found.size, more };
  }

  #settings(text: string, { limit, mayOpen }: GroupSearch): FoundGroup | undefined {
    if (!mayOpen('/config')) return undefined;
    const words = wordsOf(text);
    const found = this.#deps.configuration
      .effective()
      .filter(({ key, description, value }) => hasAll(`${key} ${description ?? ''} ${shown(value)}`, words));
    const more = `/config?q=${encodeURIComponent(text)}`;
    const items = found.slice(0, limit).map(settingItem);
    return { name: 'settings', title: 'Settings', items, total: found.length, more };
  }

  #pages(text: string, { limit, mayOpen }: GroupSearch): FoundGroup {
    const words = wordsOf(text);
    const found = this.#deps.catalogue
      .endpoints()
      .filter(({ method, path, formats, hidden }) => {
        return method === 'GET' && !path.includes('{') && formats.includes('html') && !hidden && mayOpen(path);
      })
      .filter(({ path, summary, group }) => hasAll(`${path} ${summary} ${group}`, words));
    const items = found.slice(0, limit).map(({ path, summary }) => {
      return { ...plain, title: summary, href: path, detail: path };
    });
    return { name: 'pages', title: 'Pages', items, total: found.length, more: null };
  }
}

function traceItem({ id, session, sender, recipients, messageId, at, states }: TracedMessage): FoundItem {
  return {
    title: `${sender === '' ? '<>' : sender} → ${listed(recipients)}`,
    href: `/trace/${encodeURIComponent(id ?? session)}`,
    detail: messageId ?? '',
    at,
    states: [...new Set(states)],
    also: null,
  };
}

const userHref = ({ username }: MailUser): string => `/users/${encodeURIComponent(username)}`;

function userItem(user: MailUser, mayOpen: GroupSearch['mayOpen']): FoundItem {
  const { username, address, disabled } = user;
  const mailbox = `/store/${encodeURIComponent(address.domain)}/${encodeURIComponent(address.local)}`;
  const pages = [
    { title: 'User', href: userHref(user) },
    { title: 'Mailbox', href: mailbox },
  ].filter(({ href }) => mayOpen(href));
  const [first = { href: `/users?q=${encodeURIComponent(username)}` }, also = null] = pages;
  return { ...plain, title: username, href: first.href, detail: disabled ? 'disabled' : '', also };
}

function settingItem({ key, value, description }: EffectiveValue): FoundItem {
  const detail = `${shown(value)}${description === null ? '' : ` – ${description}`}`;
  return { ...plain, title: key, href: `/config?q=${encodeURIComponent(key)}`, detail: cut(detail) };
}

function listed(recipients: readonly string[]): string {
  const more = recipients.length - 3;
  return `${recipients.slice(0, 3).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

function shown(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function cut(text: string): string {
  return text.length <= maxDetail ? text : `${text.slice(0, maxDetail)}…`;
}

function wordsOf(text: string): readonly string[] {
  return text.toLowerCase().split(/\s+/);
}

function hasAll(text: string, words: readonly string[]): boolean {
  const lower = text.toLowerCase();
  return words.every((word) => lower.includes(word));
}
