import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import {
  answered,
  type Command,
  type CommandInput,
  confirm,
  runningServer,
  type Terminal,
} from '../../core/cli/command.js';
import { untilInterrupted, withProgress } from '../../core/cli/terminal.js';
import type { OwnerCall } from '../../core/contracts/server.js';
import { startError, usageError } from '../../core/problem.js';
import { formatNumber, pluralize, printable } from '../../core/text/format.js';
import type { ClientQueueSettings } from './options.js';

const usage = [
  'postern queue list [KEY=VALUE …] [--json]                      entries that wait; keys as in the address of the page',
  'postern queue show ID [--json]                                 one entry with its recipients and attempts',
  'postern queue retry ID … | KEY=VALUE … [--dry-run] [--json]    try them now. KEY=VALUE starts a job of the server: Ctrl-C cancels it, and what is changed stays changed',
  'postern queue hold ID … | KEY=VALUE … [--dry-run] [--json]     keep them until they are released',
  'postern queue release ID … | KEY=VALUE … [--dry-run] [--json]  release held ones',
  'postern queue bounce ID … | KEY=VALUE … [--dry-run] [--json]   return them to their senders',
  'postern queue delete ID … | KEY=VALUE … [--dry-run] [--json]   delete them; senders get no notice',
  'postern queue recover [--dry-run] [--json]                     make entries again from messages in quarantine',
] as const;

interface Call {
  /** @throws start error when none runs */
  readonly server: () => OwnerCall;
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
    if (dryRun && (word === 'list' || word === 'show')) throw usageError(usage);
    await action({ server: () => runningServer(owner), words, terminal, json, dryRun });
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
  const found = answered(await server()('GET', `/client/queue/list?${filterOf(words)}`), List);
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
  const entry = answered(await server()('GET', `/client/queue/${encodeURIComponent(uid)}`), Entry);
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

type Operation = 'retry' | 'hold' | 'release' | 'bounce' | 'delete';
const verbs = {
  retry: { past: 'retried', now: 'Retrying', ask: 'Retry' },
  hold: { past: 'held', now: 'Holding', ask: 'Hold' },
  release: { past: 'released', now: 'Releasing', ask: 'Release' },
  bounce: { past: 'bounced', now: 'Bouncing', ask: 'Bounce' },
  delete: { past: 'deleted', now: 'Deleting', ask: 'Delete' },
} as const;

/** The results for the chosen entries, and what `--json` prints. */
interface Change {
  readonly operation: Operation;
  readonly dryRun: boolean;
  /** Of a job also `cancelled`, `failed` and `interrupted`. */
  readonly state: string;
  /** Chosen entries, and those that were looked at. */
  readonly total: number;
  readonly done: number;
  /** That changed, and whose they are; of a dry run, that would. */
  readonly recipients: number;
  readonly messages: number;
  /** Of the same messages; they stay as they are. */
  readonly otherRecipients: number;
  /** Entries being sent: the change applies after that attempt. */
  readonly active: number;
  readonly notFound: number;
  readonly error: string | null;
  /** By id, those that are not done; empty for a filter. */
  readonly results: readonly { readonly uid: string; readonly outcome: string; readonly detail: string | null }[];
}

async function change(operation: Operation, { server, words: given, terminal, json, dryRun }: Call): Promise<void> {
  const filters = given.filter((word) => word.includes('='));
  if (given.length === 0 || (filters.length > 0 && filters.length < given.length)) throw usageError(usage);
  const [isFilter, call] = [filters.length > 0, server()];
  const selector = isFilter ? { filter: filterOf(filters) } : { uids: given };
  const isAsked = (operation === 'bounce' || operation === 'delete') && terminal.interactive;
  const dry = dryRun || isAsked ? await changeAtOnce(call, operation, selector, true) : undefined;
  if (!dryRun && dry !== undefined) await confirm(terminal, `${verbs[operation].ask} ${affected(dry)}?`);
  const changed =
    dryRun && dry !== undefined
      ? dry
      : await (isFilter ? changeByJob(call, operation, selector) : changeAtOnce(call, operation, selector));
  if (json) terminal.print(JSON.stringify(changed, null, 2));
  else for (const line of linesOf(changed)) terminal.print(line);
  const { state, done, total, error } = changed;
  const reached = `${formatNumber(done)} of ${pluralize(total, 'entry', 'entries')} done.`;
  if (state !== 'done') throw startError(`The job is ${state}: ${error ?? reached}`);
}

const AtOnce = z.object({
  requested: z.number(),
  recipients: z.number(),
  messages: z.number(),
  otherRecipients: z.number(),
  results: z.array(z.object({ uid: z.string(), outcome: z.string(), detail: z.string().nullable() })),
});

async function changeAtOnce(call: OwnerCall, operation: Operation, selector: object, dryRun = false): Promise<Change> {
  const answer = answered(await call('POST', `/client/queue/${operation}`, { ...selector, dryRun }), AtOnce);
  const { requested, results, ...reach } = answer;
  const count = (wanted: string): number => results.filter(({ outcome }) => outcome === wanted).length;
  return {
    operation,
    dryRun,
    state: 'done',
    total: requested,
    done: results.length,
    ...reach,
    active: count('active'),
    notFound: count('notFound'),
    error: null,
    results: results.filter(({ outcome }) => outcome !== 'done'),
  };
}

const Job = z.object({
  id: z.string(),
  state: z.string(),
  total: z.number(),
  done: z.number(),
  recipients: z.number(),
  messages: z.number(),
  otherRecipients: z.number(),
  active: z.number(),
  notFound: z.number(),
  error: z.string().nullable(),
});

/** Waits between looks at a job: short ones first, for most jobs are. */
const [firstPauseMs, maxPauseMs] = [20, 500];

/** A job of the server: Ctrl-C cancels it. It continues when this process is killed. */
async function changeByJob(call: OwnerCall, operation: Operation, selector: object): Promise<Change> {
  const started = await call('POST', `/client/queue/${operation}`, { ...selector, job: true });
  let { job } = answered(started, z.object({ job: Job }));
  const path = `/client/queue/jobs/${job.id}`;
  await untilInterrupted((interrupted) =>
    withProgress(verbs[operation].now, async (show) => {
      for (let ms = firstPauseMs; job.state === 'running'; ms = Math.min(2 * ms, maxPauseMs)) {
        await pause(ms, undefined, { signal: interrupted }).catch(() => undefined);
        // Refused when the job has ended in the meantime.
        if (interrupted.aborted) await call('POST', `${path}/cancel`);
        job = answered(await call('GET', path), Job);
        show(
          `${verbs[operation].now}: ${formatNumber(job.done)} of ${pluralize(job.total, 'entry', 'entries')} (Ctrl-C cancels)`,
        );
      }
    }),
  );
  const { id: _, ...reached } = job;
  return { operation, dryRun: false, ...reached, results: [] };
}

function linesOf({ operation, dryRun, results, ...change }: Change): readonly string[] {
  const [{ active, notFound, otherRecipients }, { past }] = [change, verbs[operation]];
  const entries = (count: number): string => pluralize(count, 'entry', 'entries');
  const counted = results.length === 0 && !dryRun;
  return [
    `${affected(change)} ${dryRun ? 'would be ' : ''}${past}.`,
    ...(otherRecipients > 0
      ? [
          `${pluralize(otherRecipients, 'other recipient')} of the same messages ${dryRun ? 'would stay' : 'stay'} as they are.`,
        ]
      : []),
    ...(counted && active > 0 ? [`${entries(active)} being sent now: the change applies after this attempt.`] : []),
    ...(counted && notFound > 0 ? [`${entries(notFound)} not there any more, or in no state for it.`] : []),
    ...results.map(
      ({ uid, outcome, detail }) => `  ${uid}: ${detail ?? (outcome === 'notFound' ? 'not found' : outcome)}`,
    ),
  ];
}

const affected = ({ recipients, messages }: Pick<Change, 'recipients' | 'messages'>): string =>
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

async function recover({ server, words: given, terminal, json, dryRun }: Call): Promise<void> {
  if (given.length > 0) throw usageError(usage);
  const { recovered, left } = answered(await server()('POST', '/client/queue/recover', { dryRun }), Recovered);
  if (json) {
    terminal.print(JSON.stringify({ dryRun, recovered, left }, null, 2));
    return;
  }
  const messages = pluralize(recovered, 'message');
  terminal.print(dryRun ? `${messages} can be queued again.` : `${messages} queued again.`);
  if (left.length > 0) terminal.print(`${pluralize(left.length, 'file')} left in quarantine:`);
  for (const { name, reason } of left) terminal.print(`  ${name}: ${reason}`);
}
