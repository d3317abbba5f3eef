import { pluralize } from '../../core/text/format.js';
import { type AuditEntry, requestedPath } from '../../core/contracts/http-records.js';

/** A piece of a sentence; with `href` it leads to what it names. */
export interface Words {
  readonly text: string;
  readonly href?: string;
}

type Piece = string | Words;

/** An entry with its selector as fields. */
interface Told {
  readonly entry: AuditEntry;
  readonly selector: Readonly<Record<string, unknown>>;
}

const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : Array.isArray(value) ? value.map(textOf).join(', ') : JSON.stringify(value ?? '');

/** A field of the selector, else a parameter of the path. */
const field = ({ selector, entry }: Told, name: string): string =>
  textOf(selector[name] ?? entry.params[name] ?? '') || '(unknown)';

const link = (text: string, ...path: readonly string[]): Words => ({
  text,
  href: `/${path.map(encodeURIComponent).join('/')}`,
});

const user = (told: Told): Words => link(field(told, 'username'), 'users', field(told, 'username'));
const account = (told: Told): Words => ({ text: field(told, 'username'), href: '/accounts' });
const destination = (told: Told): Words =>
  link(field(told, 'destination'), 'client', 'destinations', field(told, 'destination'));
const node = (told: Told): Words => ({ text: field(told, 'node'), href: '/cluster' });
const setOf = (told: Told): Words => link(`set ${field(told, 'set')}`, 'cluster', 'configuration', field(told, 'set'));
const quarantined = (told: Told): Words => ({ text: field(told, 'name'), href: '/client/queue/quarantine' });

function mailbox({ entry: { params } }: Told): Words {
  const [domain, name] = [textOf(params['domain']), textOf(params['user'])];
  return link(`${name}@${domain}`, 'store', domain, name);
}

function folder(told: Told, name = 'folder'): Words {
  const { domain, user: owner } = told.entry.params;
  return link(field(told, name), 'store', textOf(domain), textOf(owner), 'folders', field(told, name));
}

const count = ({ entry }: Told, ...names: readonly string[]): number =>
  names.map((name) => entry.counts?.[name]).find((one) => one !== undefined) ?? 0;

const messages = (told: Told): string =>
  pluralize(count(told, 'changed', 'updated', 'deleted', 'moved', 'affected', 'messages'), 'message');

/** Queue entries by uid, or by the filter that chose them. */
function queued({ selector, entry }: Told): readonly Piece[] {
  const { filter, uids, uid } = selector;
  if (typeof filter === 'string') {
    const fields = [...new URLSearchParams(filter)].map(([name, value]) => `${name} ${value}`).join(', ');
    const shown = filter === 'all=true' ? 'all queued messages' : `queued messages with ${fields}`;
    return [{ text: shown, href: `/client/queue/list${filter === 'all=true' ? '' : `?${filter}`}` }];
  }
  const named = uids ?? uid ?? entry.params['uid'] ?? [];
  const list = (Array.isArray(named) ? named : [named]).map(textOf);
  const links = list
    .slice(0, 3)
    .flatMap((one, index): Piece[] => [...(index > 0 ? [', '] : []), link(one, 'client', 'queue', one)]);
  const more = list.length > 3 ? [` and ${list.length - 3} more`] : [];
  return [list.length === 1 ? 'the queued message ' : 'the queued messages ', ...links, ...more];
}

const inMailbox = (told: Told): readonly Piece[] => ['in ', folder(told), ' of ', mailbox(told)];
const ofDraft = (told: Told): readonly Piece[] => ['a draft of ', mailbox(told)];

const marked = (words: string) => (told: Told) => [`marked ${messages(told)} as ${words} `, ...inMailbox(told)];

type Sentence = (told: Told) => readonly Piece[];

/** By action, or by method and route where an endpoint names none. Each goes on after the name of who did it. */
const sentences: Readonly<Record<string, Sentence>> = {
  'add user': (told) => ['added the user ', user(told)],
  'change user': (told) => [
    told.selector['fields'] === undefined ? 'changed ' : `changed ${field(told, 'fields')} of `,
    'the user ',
    user(told),
  ],
  'remove user': (told) => ['removed the user ', user(told)],
  'add account': (told) => ['added the account ', account(told)],
  'change account': (told) => [`changed ${field(told, 'fields')} of the account `, account(told)],
  'remove account': (told) => ['removed the account ', account(told)],
  'drain node': (told) => ['drained the node ', node(told)],
  'undrain node': (told) => ['ended the drain of the node ', node(told)],
  'forget node': (told) => ['took the dead node ', node(told), ' out of the list'],
  'push configuration': (told) => ['kept ', setOf(told), ' of the configuration'],
  'use configuration': (told) => ['put ', setOf(told), ' of the configuration to use'],
  'end sessions': (told) => ['ended ', pluralize(count(told, 'ended'), 'session'), ' of their own'],
  'config.reload': (told) => [
    'reloaded the ',
    { text: 'configuration', href: '/config' },
    ...(Array.isArray(told.selector['changed']) && told.selector['changed'].length > 0
      ? [`, which changed ${field(told, 'changed')}`]
      : []),
    ...(told.selector['refused'] === undefined ? [] : [`: ${field(told, 'refused')}`]),
  ],
  'config.sync': () => ['pulled the ', { text: 'configuration', href: '/config/sync/status' }],
  'take heap dump': () => ['took a ', { text: 'heap dump', href: '/system/heapdumps' }],
  'delete heap dump': () => ['deleted a ', { text: 'heap dump', href: '/system/heapdumps' }],
  'destination.change': (told) => ['changed the limits of ', destination(told)],
  'destination.clear': (told) => ['reset the limits of ', destination(told)],
  'queue.retry': (told) => ['retried ', ...queued(told)],
  'queue.delete': (told) => ['deleted ', ...queued(told)],
  'queue.bounce': (told) => ['bounced ', ...queued(told)],
  'queue.hold': (told) => ['held ', ...queued(told)],
  'queue.release': (told) => ['released ', ...queued(told)],
  'client.queue': (told) => ['queued ', ...queued(told)],
  'quarantine.recover': (told) => [
    'recovered quarantined files: ',
    { text: field(told, 'names'), href: '/client/queue/quarantine' },
  ],
  'quarantine.queue': (told) => ['requeued the quarantined file ', quarantined(told)],
  'quarantine.remove': (told) => ['removed the quarantined file ', quarantined(told)],
  'draft created': (told) => ['wrote ', ...ofDraft(told)],
  'draft saved': (told) => ['saved ', ...ofDraft(told)],
  'draft discarded': (told) => ['discarded ', ...ofDraft(told)],
  'draft sent': (told) => ['sent ', ...ofDraft(told)],
  'attachments added': (told) => ['attached a file to ', ...ofDraft(told)],
  'attachment removed': (told) => ['removed a file from ', ...ofDraft(told)],
  'messages.mark-all-read': marked('read'),
  'messages.read': marked('read'),
  'messages.unread': marked('unread'),
  'messages.flag': marked('flagged'),
  'messages.unflag': marked('not flagged'),
  'messages.move': (told) =>
    told.selector['to'] === undefined
      ? [`moved ${messages(told)} out of `, folder(told), ' of ', mailbox(told)]
      : [`moved ${messages(told)} from `, folder(told, 'from'), ' to ', folder(told, 'to'), ' of ', mailbox(told)],
  'messages.trash': (told) => [`moved ${messages(told)} to the trash, `, ...inMailbox(told)],
  'messages.delete': (told) => [`deleted ${messages(told)} `, ...inMailbox(told)],
  'messages.delete-all': (told) => [`deleted all ${messages(told)} `, ...inMailbox(told)],
  'messages.cleanup': (told) => [`deleted ${messages(told)} by age `, ...inMailbox(told)],
  'messages.append': (told) => [`filed ${messages(told)} `, ...inMailbox(told)],
  'mailbox.delete': (told) => [`deleted the mailbox ${field(told, 'mailbox')} with ${messages(told)}`],
  'folder.create': (told) => ['created the folder ', folder(told), ' of ', mailbox(told)],
  'folder.rename': (told) => ['renamed a folder to ', folder(told), ' of ', mailbox(told)],
  'folder.copy': (told) => ['copied a folder to ', folder(told), ' of ', mailbox(told)],
  'folder.move': (told) => ['moved a folder to ', folder(told), ' of ', mailbox(told)],
  'folder.delete': (told) => [`deleted the folder ${field(told, 'folder')} of `, mailbox(told), `, ${messages(told)}`],
  'POST /client/send': () => ['sent a message from the page ', { text: 'Send mail', href: '/client/send' }],
};

/** What was done, or tried, in words. What no sentence is known for is told by its action and address. */
export function auditWords(entry: AuditEntry): readonly Words[] {
  const { action, method, route, selector } = entry;
  const key = [action ?? '', `${method} ${route}`].find((one) => Object.hasOwn(sentences, one));
  const fields = typeof selector === 'object' && selector !== null && !Array.isArray(selector) ? selector : {};
  const told = { entry, selector: fields as Told['selector'] };
  const pieces = (key === undefined ? undefined : sentences[key]?.(told)) ?? unknownAction(entry);
  return pieces.map((piece) => (typeof piece === 'string' ? { text: piece } : piece));
}

const unknownAction = (entry: AuditEntry): readonly Piece[] => [
  entry.action === undefined
    ? `called ${entry.method} ${requestedPath(entry)}`
    : `${entry.action}: ${requestedPath(entry)}`,
];
