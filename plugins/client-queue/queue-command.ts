import { z } from 'zod';
import {
  answered,
  type Command,
  type CommandInput,
  confirm,
  runningServer,
  type Terminal,
} from '../../core/cli/command.js';
import type { OwnerCall } from '../../core/contracts/server.js';
import { usageError } from '../../core/problem.js';
import { pluralize, printable } from '../../core/text/format.js';
import type { ClientQueueSettings } from './options.js';

const usage = [
  'postern queue list [KEY=VALUE …] [--json]               entries that wait; keys as in the address of the page',
  'postern queue show ID [--json]                          one entry with its recipients and attempts',
  'postern queue retry ID … | KEY=VALUE … [--dry-run]      try them now',
  'postern queue hold ID … | KEY=VALUE … [--dry-run]       keep them until they are released',
  'postern queue release ID … | KEY=VALUE … [--dry-run]    release held ones',
  'postern queue bounce ID … | KEY=VALUE … [--dry-run]     return them to their senders',
  'postern queue delete ID … | KEY=VALUE … [--dry-run]     delete them; senders get no notice',
  'postern queue recover [--dry-run]                       make entries again from messages in quarantine',
] as const;

interface Call {
  readonly server: OwnerCall;
  readonly words: readonly string[];
  readonly terminal: Terminal;
  readonly json: boolean;
  readonly dryRun: boolean;
}

const actions: Readonly<Record<string, (call: Call) => Promise<void>>> = {
  list,
  show,
  recover,
  retry: (call) => change('retry', call),
  hold: (call) => change('hold', call),
  release: (call) => change('release', call),
  bounce: (call) => change('bounce', call),
  delete: (call) => change('delete', call),
};

/** `postern queue …`. The running server does it: the queue is in its memory. */
export const queueCommand: Command<ClientQueueSettings> = {
  name: 'queue',
  summary: 'Mail that waits: list, show, retry, hold, release, bounce, delete, recover',
  usage,
  flags: ['json', 'dry-run'],
  async run({ args: [word = '', ...words], flags, owner, terminal }: CommandInput<ClientQueueSettings>) {
    const action = Object.hasOwn(actions, word) ? actions[word] : undefined;
    if (action === undefined) throw usageError(usage);
    const [json, dryRun] = [flags?.has('json') === true, flags?.has('dry-run') === true];
    if ((json && word !== 'list' && word !== 'show') || (dryRun && (word === 'list' || word === 'show')))
      throw usageError(usage);
    await action({ server: runningServer(owner), words, terminal, json, dryRun });
  },
};

const Reply = z.object({ code: z.number(), status: z.string(), text: z.string(), host: z.string().nullable() });
const Summary = z.looseObject({
  uid: z.string(),
  state: z.string(),
  sender: z.string(),
  recipients: z.array(z.looseObject({ address: z.string(), state: z.string(), lastReply: Reply.nullable() })),
  subject: z.string(),
  attempts: z.number(),
  nextAttempt: z.string().nullable(),
  lastReply: Reply.nullable(),
});
type Summary = z.output<typeof Summary>;
const List = z.looseObject({
  items: z.array(Summary),
  total: z.number(),
  totalIsLeast: z.boolean().default(false),
  nextCursor: z.string().nullable(),
});
const Entry = Summary.extend({
  history: z.array(
    z.looseObject({ at: z.string(), host: z.string().nullable(), outcome: z.string(), reply: Reply.nullable() }),
  ),
});

async function list({ server, words, terminal, json }: Call): Promise<void> {
  if (words.some((word) => !word.includes('='))) throw usageError(usage);
  const found = answered(await server('GET', `/client/queue/list?${filterOf(words)}`), List);
  if (json) {
    terminal.print(JSON.stringify(found, null, 2));
    return;
  }
  for (const entry of found.items) terminal.print(lineOf(entry));
  const shown = found.items.length === found.total ? '' : `, ${found.items.length} of them here`;
  const counted = pluralize(found.total, 'entry', 'entries');
  terminal.print(`${found.totalIsLeast ? `More than ${counted}` : counted}${shown}.`);
  if (found.nextCursor !== null)
    terminal.print(`More: postern queue list ${words.join(' ')} cursor=${found.nextCursor}`);
}

/** One line for reading and for `grep`. Senders and replies are text of strangers. */
function lineOf({ uid, state, sender, recipients, attempts, nextAttempt, lastReply }: Summary): string {
  const [first, ...others] = recipients.map(({ address }) => address);
  const to = `${first ?? '-'}${others.length === 0 ? '' : ` (+${others.length})`}`;
  const due = nextAttempt === null ? '' : `, next ${nextAttempt.slice(0, 16)}Z`;
  const reply = lastReply === null ? '' : `  ${replyText(lastReply)}`;
  const tries = `${pluralize(attempts, 'attempt')}${due}`;
  return printable(`${uid}  ${state}  <${sender}> → ${to}  ${tries}${reply}`);
}

const replyText = ({ code, status, text, host }: z.output<typeof Reply>): string =>
  `${host === null ? '' : `${host}: `}${code} ${status} ${text}`;

async function show({ server, words: [uid, ...rest], terminal, json }: Call): Promise<void> {
  if (uid === undefined || rest.length > 0) throw usageError(usage);
  const entry = answered(await server('GET', `/client/queue/${encodeURIComponent(uid)}`), Entry);
  if (json) {
    terminal.print(JSON.stringify(entry, null, 2));
    return;
  }
  terminal.print(lineOf(entry));
  terminal.print(printable(`Subject: ${entry.subject}`));
  for (const { address, state, lastReply } of entry.recipients)
    terminal.print(printable(`  ${address}  ${state}${lastReply === null ? '' : `  ${replyText(lastReply)}`}`));
  for (const { at, host, outcome, reply } of entry.history)
    terminal.print(printable(`  ${at}  ${outcome}  ${host ?? '-'}${reply === null ? '' : `  ${replyText(reply)}`}`));
}

const past = { retry: 'retried', hold: 'held', release: 'released', bounce: 'bounced', delete: 'deleted' } as const;
const Changed = z.object({
  recipients: z.number(),
  messages: z.number(),
  otherRecipients: z.number(),
  results: z.array(z.object({ uid: z.string(), outcome: z.string(), detail: z.string().nullable() })),
});

async function change(operation: keyof typeof past, { server, words, terminal, dryRun }: Call): Promise<void> {
  const filters = words.filter((word) => word.includes('='));
  if (words.length === 0 || (filters.length > 0 && filters.length < words.length)) throw usageError(usage);
  const selector = filters.length > 0 ? { filter: filterOf(filters) } : { uids: words };
  const path = `/client/queue/${operation}`;
  const isFinal = operation === 'bounce' || operation === 'delete';
  if (dryRun || (isFinal && terminal.interactive)) {
    const about = affected(answered(await server('POST', path, { ...selector, dryRun: true }), Changed));
    if (dryRun) {
      terminal.print(`${about} would be ${past[operation]}.`);
      return;
    }
    await confirm(terminal, `${operation === 'bounce' ? 'Bounce' : 'Delete'} ${about}?`);
  }
  const changed = answered(await server('POST', path, selector), Changed);
  terminal.print(`${affected(changed)} ${past[operation]}.`);
  if (changed.otherRecipients > 0)
    terminal.print(`${pluralize(changed.otherRecipients, 'other recipient')} of the same messages unchanged.`);
  for (const { uid, outcome, detail } of changed.results)
    if (outcome !== 'done') terminal.print(`  ${uid}: ${detail ?? (outcome === 'notFound' ? 'not found' : outcome)}`);
}

const affected = ({ recipients, messages }: z.output<typeof Changed>): string =>
  `${pluralize(recipients, 'recipient')} in ${pluralize(messages, 'message')}`;

function filterOf(words: readonly string[]): string {
  const fields = words.map((word): [string, string] => {
    const at = word.indexOf('=');
    return [word.slice(0, at), word.slice(at + 1)];
  });
  return new URLSearchParams(fields).toString();
}

const Recovered = z.object({
  recovered: z.number(),
  left: z.array(z.object({ name: z.string(), reason: z.string() })),
});

async function recover({ server, words, terminal, dryRun }: Call): Promise<void> {
  if (words.length > 0) throw usageError(usage);
  const { recovered, left } = answered(await server('POST', '/client/queue/recover', { dryRun }), Recovered);
  const messages = pluralize(recovered, 'message');
  terminal.print(dryRun ? `${messages} can be queued again.` : `${messages} queued again.`);
  if (left.length > 0) terminal.print(`${pluralize(left.length, 'file')} left in quarantine:`);
  for (const { name, reason } of left) terminal.print(`  ${name}: ${reason}`);
}
