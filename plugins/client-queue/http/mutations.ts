import { z } from 'zod';
import type {
  EntryFilter,
  EntrySelector,
  Mutation,
  MutationPreview,
  MutationResult,
  MutationRun,
} from '../../../core/contracts/relay-queue.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import {
  type AnyEndpoint,
  defineEndpoint,
  type EndpointRequest,
  respond,
  type Response,
} from '../../../core/http/endpoint.js';
import { namesTag, unconfirmed } from '../../../core/http/response.js';
import { parseTime, pluralize } from '../../../core/text/format.js';
import { problem } from '../../../core/problem.js';
import { isoTime, summaryAnswer, EntrySummaryAnswer } from './entry-answer.js';
import { isOpenState, maxSelected, entrySelection, entryFilterQuery } from './queue-page.js';
import { outboundGroup, type QueueDeps } from './client-deps.js';
import { JobAnswer, jobAnswer, jobPath, othersText, reachText } from './jobs.js';

/** Forms that act on more entries start a job. */
const maxAtOnce = 500;
const limit = 2 * 1024 * 1024;
const reason = z
  .string()
  .max(500)
  .refine((text) => !/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text), 'must be one line')
  .optional();
/** A later time is a mistake, such as milliseconds for seconds. */
const maxAheadMs = 366 * 86_400_000;
const moment = ({ clock }: QueueDeps) =>
  z
    .union([z.literal(''), z.iso.datetime({ offset: true }), z.iso.datetime({ local: true }), z.int().min(0)])
    .transform((at) => (at === '' ? undefined : typeof at === 'number' ? at * 1000 : parseTime(at)))
    .refine(
      (at = 0) => at <= clock.now() + maxAheadMs,
      'must be within a year from now; a number is seconds since 1970',
    )
    .optional();

export const MutationAnswer = z.object({
  operation: z.enum(['retry', 'delete', 'bounce', 'hold', 'release']),
  requested: z.int(),
  changed: z.int(),
  recipients: z.int().describe('That changed; of a dry run, that would'),
  messages: z.int().describe('Whose recipients these are'),
  otherRecipients: z.int().describe('Open recipients of the same messages that stay as they are'),
  summary: z.string().describe('The same as a sentence'),
  queueSize: z.int().describe('Open entries'),
  results: z.array(
    z.object({ uid: z.string(), outcome: z.enum(['done', 'notFound', 'active']), detail: z.string().nullable() }),
  ),
  at: z.string(),
  by: z.string().nullable(),
  sample: z.array(EntrySummaryAnswer).optional().describe('Of a dry run'),
  dryRun: z.boolean().optional(),
});
const Started = z.object({ job: JobAnswer }).describe('Of a job: 202');
type Answer = z.output<typeof MutationAnswer> | z.output<typeof Started>;

/** Operations on entries, chosen one by one or by filter. */
export function mutationEndpoints(deps: QueueDeps): readonly AnyEndpoint[] {
  return [retrying(deps), deleting(deps), bouncing(deps), holding(deps), releasing(deps), choosing(deps)];
}

const common = {
  method: 'POST',
  group: outboundGroup,
  access: 'operate',
  answer: z.union([MutationAnswer, Started]),
  success: [200, 202],
  cache: 'no-store',
  conditions: ['If-Match'],
} as const;
const back = z.string().max(6000).optional().describe('Where a form goes back to: a path of the queue.');
const job = z
  .boolean()
  .optional()
  .describe(`Run as a job: 202 with its address. Forms do so for more than ${maxAtOnce} entries.`);
const fields = { ...entrySelection, back, job };

const retrying = (deps: QueueDeps) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/retry',
    summary: 'Retry entries now, or at a time',
    body: {
      kind: 'fields',
      limit,
      schema: z.strictObject({
        ...fields,
        at: moment(deps).describe('ISO 8601, or seconds since 1970; within a year; now if absent.'),
      }),
    },
    handle: ({ body: { at, ...selection }, request }) =>
      change(deps, { operation: 'retry', ...(at !== undefined && { at }) }, selection, request),
  });

const deleting = (deps: QueueDeps) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/delete',
    summary: 'Delete entries without a notification',
    body: { kind: 'fields', limit, schema: z.strictObject(fields) },
    handle: ({ body, request }) => change(deps, { operation: 'delete' }, body, request),
  });

const bouncing = (deps: QueueDeps) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/bounce',
    summary: 'Return entries to their senders, with a delivery status notification',
    body: {
      kind: 'fields',
      limit,
      schema: z.strictObject({
        ...fields,
        reason: reason.describe('Told to the sender.'),
        status: z
          .union([
            z.literal(''),
            z.string().regex(/^5\.\d{1,3}\.\d{1,3}$/, 'must be an enhanced status code such as 5.7.1'),
          ])
          .optional()
          .describe('Enhanced status code (RFC 3463).'),
      }),
    },
    handle: ({ body: { reason: why, status, ...selection }, request }) =>
      change(
        deps,
        {
          operation: 'bounce',
          ...(why !== undefined && why !== '' && { reason: why }),
          ...(status !== undefined && status !== '' && { status }),
        },
        selection,
        request,
      ),
  });

const holding = (deps: QueueDeps) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/hold',
    summary: 'Hold entries until they are released, or until a time',
    body: {
      kind: 'fields',
      limit,
      schema: z.strictObject({
        ...fields,
        reason,
        until: moment(deps).describe('ISO 8601, or seconds since 1970; within a year; until released if absent.'),
      }),
    },
    handle: ({ body: { reason: why, until, ...selection }, request }) =>
      change(
        deps,
        {
          operation: 'hold',
          ...(why !== undefined && why !== '' && { reason: why }),
          ...(until !== undefined && { until }),
        },
        selection,
        request,
      ),
  });

const releasing = (deps: QueueDeps) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/release',
    summary: 'Release held entries',
    body: { kind: 'fields', limit, schema: z.strictObject(fields) },
    handle: ({ body, request }) => change(deps, { operation: 'release' }, body, request),
  });

/** Browsers such as w3m ignore `formaction`: the name and value of the button identify the operation. */
const choosing = (deps: QueueDeps) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/selection',
    summary: 'The form of the list: the action of its button, for the selected entries',
    body: { kind: 'fields', limit, schema: z.strictObject({ ...fields, operation: MutationAnswer.shape.operation }) },
    handle: ({ body: { operation, ...selection }, request }) =>
      change(deps, { operation }, request.representation === 'html' ? chosenOnPage(selection) : selection, request),
  });

/** "All on this list" on a page overrides individual ticks. */
function chosenOnPage(selection: Given): Given {
  const { uids, filter } = selection;
  if (filter !== undefined) return { ...selection, uids: undefined, within: undefined };
  if (uids !== undefined) return selection;
  const message = 'Select at least one entry.';
  throw problem('invalid', { detail: message, errors: [{ pointer: '/uids', message }] });
}

interface Given extends Selection {
  readonly dryRun?: boolean | undefined;
  readonly back?: string | undefined;
  readonly job?: boolean | undefined;
}

async function change(
  deps: QueueDeps,
  mutation: Mutation,
  { dryRun, back: way, job: asJob, ...selection }: Given,
  request: EndpointRequest,
): Promise<Response<Answer>> {
  const { queue, clock } = deps;
  const { ifMatch } = request;
  if (ifMatch !== undefined && asJob === true)
    throw problem('bad-request', 'If-Match holds for a change that is made at once: leave out job.');
  const isExpected = ifMatch === undefined ? undefined : (version: string) => namesTag(ifMatch, version);
  const chosen = await chosenBy(selection, queue, isExpected);
  if (dryRun === true) return dryRunOf(deps, mutation, chosen, request);
  const back = referer(way);
  const isPage = request.representation === 'html';
  if (!request.confirmed && needsQuestion(mutation, chosen)) {
    const preview = await queue.preview(chosen.selector, mutation, clock.now());
    return questionOf(request, { mutation, chosen, preview, back });
  }
  const order = { operation: mutation.operation, selection: describedSelection(chosen), total: chosen.count, back };
  const by = request.account?.username ?? null;
  if (asJob ?? (isPage && chosen.count > maxAtOnce)) {
    const job = await deps.jobs.start({ ...order, by }, (run) => carryOut(deps, mutation, chosen, run));
    return respond({
      status: 202,
      model: { job: jobAnswer(job) },
      location: jobPath(job.id),
      audit: auditOf(mutation, chosen, { requested: chosen.count }),
    });
  }
  const result = await carryOut(deps, mutation, chosen);
  const isUndoable = isPage && Object.keys(result.newlyHeld ?? {}).length > 0;
  const undo = isUndoable ? await deps.jobs.record({ ...order, by }, result) : undefined;
  const { requested, changed, recipients, messages, otherRecipients, results } = result;
  return respond({
    status: 200,
    model: {
      ...aboutOf(deps, mutation, request),
      requested,
      changed,
      recipients,
      messages,
      otherRecipients,
      summary: noticeOf(mutation, result),
      queueSize: queue.size,
      results: results.map(({ uid, outcome, detail }) => ({ uid, outcome, detail })),
    },
    location: back,
    notice: noticeOf(mutation, result),
    ...(undo !== undefined &&
      undo.held !== null && { noticeAction: { label: 'Undo', path: `${jobPath(undo.id)}/undo` } }),
    audit: auditOf(mutation, chosen, countsOf(result)),
  });
}

function aboutOf({ clock }: QueueDeps, { operation }: Mutation, { account }: EndpointRequest) {
  return { operation, at: isoTime(clock.now()), by: account?.username ?? null };
}

async function dryRunOf(
  deps: QueueDeps,
  mutation: Mutation,
  chosen: Chosen,
  request: EndpointRequest,
): Promise<Response<Answer>> {
  const { queue, clock } = deps;
  const sample = (await previewOf(chosen, queue)).map(summaryAnswer);
  const preview = await queue.preview(chosen.selector, mutation, clock.now());
  const { recipients, messages, otherRecipients } = preview;
  return respond({
    status: 200,
    model: {
      ...aboutOf(deps, mutation, request),
      requested: chosen.count,
      changed: 0,
      recipients,
      messages,
      otherRecipients,
      summary: sentenceOf(mutation, preview),
      queueSize: queue.size,
      results: [],
      sample,
      dryRun: true,
    },
  });
}

async function carryOut(
  deps: QueueDeps,
  mutation: Mutation,
  chosen: Chosen,
  run?: MutationRun,
): Promise<MutationResult> {
  const { queue, clock } = deps;
  const isTriedNow = mutation.operation === 'retry' && (mutation.at ?? 0) <= clock.now();
  if (isTriedNow) deps.forgetFailures(await destinationsOf(chosen, queue));
  const result = await queue.mutate(chosen.selector, mutation, clock.now(), run);
  if (mutation.operation === 'bounce') deps.sendNotices();
  return result;
}

const auditOf = ({ operation }: Mutation, chosen: Chosen, counts: Readonly<Record<string, number>>) => ({
  action: `queue.${operation}`,
  selector: shownSelector(chosen),
  counts,
});

/** The selection in words, for the page of a job. */
function describedSelection({ selector, count }: Chosen): string {
  const filter = 'filter' in selector ? selector.filter : undefined;
  if (filter === undefined) return pluralize(count, 'selected entry', 'selected entries');
  const words = Object.entries(filter).map(([name, value]) => `${name} ${String(value)}`);
  return words.length === 0 ? 'All open entries' : words.join(', ').slice(0, 500);
}

/** Irreversible operations need a confirmation, as do operations on a filter. */
function needsQuestion({ operation }: Mutation, { selector }: Chosen): boolean {
  return operation === 'delete' || operation === 'bounce' || 'filter' in selector;
}

function noticeOf({ operation }: Mutation, { recipients, messages, otherRecipients, results }: MutationResult): string {
  const active = results.filter(({ outcome }) => outcome === 'active').length;
  const gone = results.filter(({ outcome }) => outcome === 'notFound').length;
  const rest = [
    active === 0
      ? ''
      : ` ${pluralize(active, 'entry', 'entries')} being sent now; the change applies after this attempt.`,
    gone === 0 ? '' : ` ${pluralize(gone, 'entry', 'entries')} not there any more, or in no state for it.`,
  ];
  return `${reachText(operation, { recipients, messages, otherRecipients })}${rest.join('')}`;
}

function countsOf({ requested, changed, recipients, results }: MutationResult) {
  return { requested, changed, recipients, active: results.filter(({ outcome }) => outcome === 'active').length };
}

/** Shortens the selector: thousands of uids would fill the audit log. */
function shownSelector({ selector, count }: Chosen): unknown {
  if ('filter' in selector) return { filter: entryFilterQuery(selector.filter) };
  const within = selector.within === undefined ? {} : { within: entryFilterQuery(selector.within) };
  const uids = count > 20 ? [...selector.uids.slice(0, 20), `and ${count - 20} more`] : selector.uids;
  return { uids, ...within };
}

/** No dot segments, which could lead out of the queue. */
const ownPath = /^\/client\/(?:queue|destinations)(?:\/(?!\.)[!-.0->@-[\]-~]+)+(?:\?[!-[\]-~]*)?$/;

/** Only paths of the queue. */
function referer(path: string | undefined): string {
  return path !== undefined && ownPath.test(path) ? path : '/client/queue/list';
}

interface Asked {
  readonly mutation: Mutation;
  readonly chosen: Chosen;
  readonly preview: MutationPreview;
  readonly back: string;
}

/** The confirmation page with what an operation will change. */
function questionOf({ representation }: EndpointRequest, { mutation, chosen, preview, back }: Asked): Response<never> {
  const { operation } = mutation;
  if (representation !== 'html') throw unconfirmed(sentenceOf(mutation, preview));
  const model = {
    operation,
    sentence: sentenceOf(mutation, preview),
    action: `/client/queue/${operation}`,
    fields: [...selectorFields(chosen), ...optionFields(mutation), { name: 'back', value: back }],
    label: labels[operation],
    isDestructive: operation === 'delete' || operation === 'bounce',
    askReason: operation === 'bounce' || operation === 'hold',
    reason: 'reason' in mutation ? (mutation.reason ?? '') : '',
    sample: preview.sample.map(({ entry, addresses }) => ({
      ...summaryAnswer(entry),
      shown: addresses.slice(0, shownRecipients),
      moreRecipients: Math.max(0, addresses.length - shownRecipients),
    })),
    more: preview.messages - preview.sample.length,
    back,
  };
  // The endpoint's own model is for scripts, which are never asked.
  return respond({ view: 'client-queue/question.njk', model }) as unknown as Response<never>;
}

/** Recipients shown in a row; the others are counted. */
const shownRecipients = 2;

const labels = {
  retry: 'Retry now',
  delete: 'Delete',
  bounce: 'Bounce',
  hold: 'Hold',
  release: 'Release',
} as const;

const sentences = {
  retry: 'will be retried now',
  delete: 'will be deleted. The senders get no notification, and it cannot be undone',
  bounce: 'will be bounced: each sender gets a notification, and it cannot be undone',
  hold: 'will be held until they are released',
  release: 'will be released',
} as const;

function sentenceOf({ operation }: Mutation, { recipients, messages, otherRecipients }: MutationPreview): string {
  const who = `${pluralize(recipients, 'recipient')} in ${pluralize(messages, 'message')} ${sentences[operation]}.`;
  return `${who}${othersText(otherRecipients)}`;
}

function selectorFields({ selector, count }: Chosen): readonly { readonly name: string; readonly value: string }[] {
  if ('uids' in selector) {
    const within = selector.within === undefined ? [] : [{ name: 'within', value: entryFilterQuery(selector.within) }];
    return [...selector.uids.map((value) => ({ name: 'uids', value })), ...within];
  }
  return [
    { name: 'filter', value: entryFilterQuery(selector.filter) },
    { name: 'expect', value: String(count) },
  ];
}

/** The reason has a field of its own on the page. */
function optionFields(mutation: Mutation): readonly { readonly name: string; readonly value: string }[] {
  if (mutation.operation === 'bounce' && mutation.status !== undefined)
    return [{ name: 'status', value: mutation.status }];
  const at = mutation.operation === 'retry' ? mutation.at : mutation.operation === 'hold' ? mutation.until : undefined;
  if (at === undefined) return [];
  return [{ name: mutation.operation === 'retry' ? 'at' : 'until', value: new Date(at).toISOString() }];
}

interface Selection {
  readonly uid?: string | undefined;
  readonly uids?: readonly string[] | undefined;
  readonly filter?: EntryFilter | undefined;
  readonly within?: EntryFilter | undefined;
  readonly expect?: number | undefined;
}

/** The selected entries and their number. */
interface Chosen {
  readonly selector: EntrySelector;
  readonly count: number;
}

/**
 * @param isExpected check of the entry's version; for a single entry
 * @throws Problem `invalid` unless exactly one selector is given, `too-large`, `conflict` when the number differs from
 * the expected one
 */
async function chosenBy(
  { uid, uids, filter, within, expect }: Selection,
  queue: RelayQueue,
  isExpected?: (version: string) => boolean,
): Promise<Chosen> {
  const given = [uid, uids, filter].filter((value) => value !== undefined).length;
  if (given !== 1) {
    const detail =
      given === 0 ? 'Select at least one message: give uid, uids or filter.' : 'Give one of uid, uids and filter.';
    throw problem('invalid', { detail, errors: [{ pointer: '', message: detail }] });
  }
  if (filter !== undefined && within !== undefined) {
    const message = 'goes with uid or uids; a filter has criteria of its own';
    throw problem('invalid', { detail: `within: ${message}`, errors: [{ pointer: '/within', message }] });
  }
  if (uids !== undefined && uids.length > maxSelected)
    throw problem('too-large', `One call takes at most ${maxSelected} uids. Choose by filter.`);
  const selector =
    filter === undefined ? { uids: [...new Set(uids ?? [uid ?? ''])], isExpected, within } : { filter, expect };
  if (isExpected !== undefined && (!('uids' in selector) || selector.uids.length > 1))
    throw problem('bad-request', 'If-Match holds for one entry: choose it by its uid.');
  const count = 'filter' in selector ? await queue.count(selector.filter) : selector.uids.length;
  if (expect !== undefined && expect !== count)
    throw problem(
      'conflict',
      `The selection has ${pluralize(count, 'entry', 'entries')} now, not ${expect}. Look at the list again.`,
    );
  return { selector, count };
}

/** Maximum number of entries that are read individually. */
const maxLookedAt = 50;

/** Destinations of the selection; undefined when it is too large to read. */
async function destinationsOf({ selector }: Chosen, queue: RelayQueue): Promise<readonly string[] | undefined> {
  if ('filter' in selector) {
    const { destination } = selector.filter;
    return destination === undefined ? undefined : [destination.toLowerCase()];
  }
  if (selector.uids.length > maxLookedAt) return undefined;
  const entries = await Promise.all(selector.uids.map((uid) => queue.find(uid)));
  const open = entries.flatMap((entry) => entry?.recipients.filter(({ state }) => isOpenState(state)) ?? []);
  return [...new Set(open.map(({ destination }) => destination))];
}

/** A sample of the selection and its senders, for the confirmation page. */
async function previewOf({ selector }: Chosen, queue: RelayQueue) {
  if ('filter' in selector) return (await queue.list({ filter: selector.filter, limit: 10 })).items;
  const entries = await Promise.all(selector.uids.slice(0, 10).map((uid) => queue.find(uid)));
  return entries.filter((entry) => entry !== undefined);
}
