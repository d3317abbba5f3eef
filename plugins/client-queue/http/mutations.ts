import { z } from 'zod';
import type { Mutation, MutationResult } from '../../../core/contracts/queue-list.js';
import {
  type AnyEndpoint,
  defineEndpoint,
  type EndpointRequest,
  respond,
  type Response,
} from '../../../core/http/endpoint.js';
import { namesTag } from '../../../core/http/entity-tag.js';
import { pluralize } from '../../../core/text/format.js';
import { problem } from '../../../core/problem.js';
import { isoTime, SummaryAnswer, summaryAnswer } from './entry-answer.js';
import { othersText, questionOf } from './mutation-question.js';
import { selectionFields, writtenFilter } from './queue-query.js';
import { group, type QueueSite } from './queue-site.js';
import { type Chosen, chosenBy, destinationsOf, previewOf, type Selection } from './selection.js';

const limit = 2 * 1024 * 1024;
const reason = z
  .string()
  .max(500)
  .refine((text) => !/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text), 'must be one line')
  .optional();
const moment = z
  .union([z.literal(''), z.iso.datetime({ offset: true }), z.iso.datetime({ local: true }), z.int().min(0)])
  .transform((at) =>
    at === ''
      ? undefined
      : typeof at === 'number'
        ? at * 1000
        : Date.parse(/[Z+]|-\d\d:\d\d$/.test(at) ? at : `${at}Z`),
  )
  .optional();

export const MutationAnswer = z.object({
  operation: z.enum(['retry', 'delete', 'bounce', 'hold', 'release']),
  requested: z.int(),
  changed: z.int(),
  recipients: z.int().describe('That changed; of a dry run, that would'),
  messages: z.int().describe('Whose recipients these are'),
  otherRecipients: z.int().describe('Open recipients of the same messages that stay as they are'),
  queueSize: z.int().describe('Open entries'),
  results: z.array(
    z.object({ uid: z.string(), outcome: z.enum(['done', 'notFound', 'active']), detail: z.string().nullable() }),
  ),
  at: z.string(),
  by: z.string().nullable(),
  sample: z.array(SummaryAnswer).optional().describe('Of a dry run'),
  dryRun: z.boolean().optional(),
});
type Answer = z.output<typeof MutationAnswer>;

/** What operators do to entries, chosen one by one or by filter. */
export function mutationEndpoints(site: QueueSite): readonly AnyEndpoint[] {
  return [retrying(site), deleting(site), bouncing(site), holding(site), releasing(site), choosing(site)];
}

const common = {
  method: 'POST',
  group,
  access: 'operate',
  answer: MutationAnswer,
  cache: 'no-store',
  conditions: ['If-Match'],
} as const;
const back = z.string().max(6000).optional().describe('Where a form goes back to: a path of the queue.');
const fields = { ...selectionFields, back };

const retrying = (site: QueueSite) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/retry',
    summary: 'Try entries again now, or at a time',
    body: {
      kind: 'fields',
      limit,
      schema: z.strictObject({ ...fields, at: moment.describe('ISO 8601; now if absent.') }),
    },
    handle: ({ body: { at, ...selection }, request }) =>
      change(site, { operation: 'retry', ...(at !== undefined && { at }) }, selection, request),
  });

const deleting = (site: QueueSite) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/delete',
    summary: 'Delete entries; nobody is told',
    body: { kind: 'fields', limit, schema: z.strictObject(fields) },
    handle: ({ body, request }) => change(site, { operation: 'delete' }, body, request),
  });

const bouncing = (site: QueueSite) =>
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
        site,
        {
          operation: 'bounce',
          ...(why !== undefined && why !== '' && { reason: why }),
          ...(status !== undefined && status !== '' && { status }),
        },
        selection,
        request,
      ),
  });

const holding = (site: QueueSite) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/hold',
    summary: 'Keep entries back until they are released, or until a time',
    body: {
      kind: 'fields',
      limit,
      schema: z.strictObject({ ...fields, reason, until: moment.describe('ISO 8601; until released if absent.') }),
    },
    handle: ({ body: { reason: why, until, ...selection }, request }) =>
      change(
        site,
        {
          operation: 'hold',
          ...(why !== undefined && why !== '' && { reason: why }),
          ...(until !== undefined && { until }),
        },
        selection,
        request,
      ),
  });

const releasing = (site: QueueSite) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/release',
    summary: 'Let held entries go on',
    body: { kind: 'fields', limit, schema: z.strictObject(fields) },
    handle: ({ body, request }) => change(site, { operation: 'release' }, body, request),
  });

/** Browsers such as w3m know no `formaction`: the name and the value of the button say what the form is for. */
const choosing = (site: QueueSite) =>
  defineEndpoint({
    ...common,
    path: '/client/queue/selection',
    summary: 'The form of the list: what its button says, for the chosen entries',
    body: { kind: 'fields', limit, schema: z.strictObject({ ...fields, operation: MutationAnswer.shape.operation }) },
    handle: ({ body: { operation, ...selection }, request }) =>
      change(site, { operation }, request.representation === 'html' ? chosenOnPage(selection) : selection, request),
  });

/** Whoever chooses all of a list on its page need not take the ticks away. */
function chosenOnPage(selection: Given): Given {
  const { uids, filter } = selection;
  if (filter !== undefined) return { ...selection, uids: undefined };
  if (uids !== undefined) return selection;
  const message = 'Select at least one entry.';
  throw problem('invalid', { detail: message, errors: [{ pointer: '/uids', message }] });
}

interface Given extends Selection {
  readonly dryRun?: boolean | undefined;
  readonly back?: string | undefined;
}

async function change(
  site: QueueSite,
  mutation: Mutation,
  { dryRun, back: way, ...selection }: Given,
  request: EndpointRequest,
): Promise<Response<Answer>> {
  const { queue, clock } = site;
  const { ifMatch } = request;
  const isExpected = ifMatch === undefined ? undefined : (version: string) => namesTag(ifMatch, version);
  const chosen = await chosenBy(selection, queue, isExpected);
  const about = { operation: mutation.operation, at: isoTime(clock.now()), by: request.account?.username ?? null };
  if (dryRun === true) {
    const sample = (await previewOf(chosen, queue)).map(summaryAnswer);
    const { count } = chosen;
    const { recipients, messages, otherRecipients } = await queue.preview(chosen.selector, mutation, clock.now());
    const reach = { recipients, messages, otherRecipients };
    return respond({
      status: 200,
      model: { ...about, requested: count, changed: 0, ...reach, queueSize: queue.size, results: [], sample, dryRun },
    });
  }
  const location = wayBack(way);
  if (!request.confirmed && needsQuestion(mutation, chosen))
    return questionOf(request, {
      mutation,
      chosen,
      preview: await queue.preview(chosen.selector, mutation, clock.now()),
      back: location,
    });
  const isTriedNow = mutation.operation === 'retry' && (mutation.at ?? 0) <= clock.now();
  if (isTriedNow) site.forgetFailures(await destinationsOf(chosen, queue));
  const result = await queue.mutate(chosen.selector, mutation, clock.now());
  if (mutation.operation === 'bounce') site.tellSenders();
  return respond({
    status: 200,
    model: {
      ...about,
      requested: result.requested,
      changed: result.changed,
      recipients: result.recipients,
      messages: result.messages,
      otherRecipients: result.otherRecipients,
      queueSize: queue.size,
      results: result.results.map(({ uid, outcome, detail }) => ({ uid, outcome, detail })),
    },
    location,
    notice: noticeOf(mutation, result),
    audit: { action: `queue.${mutation.operation}`, selector: shownSelector(chosen), counts: countsOf(result) },
  });
}

/** What cannot be undone is asked about; so is anything that a filter chooses. */
function needsQuestion({ operation }: Mutation, { selector }: Chosen): boolean {
  return operation === 'delete' || operation === 'bounce' || 'filter' in selector;
}

const words = {
  retry: 'tried again',
  delete: 'deleted',
  bounce: 'returned',
  hold: 'held',
  release: 'released',
} as const;

function noticeOf({ operation }: Mutation, { recipients, messages, otherRecipients, results }: MutationResult): string {
  const active = results.filter(({ outcome }) => outcome === 'active').length;
  const gone = results.filter(({ outcome }) => outcome === 'notFound').length;
  const rest = [
    otherRecipients === 0 ? '' : ` ${othersText(otherRecipients)}`,
    active === 0
      ? ''
      : ` ${pluralize(active, 'entry', 'entries')} being sent right now: it is done behind the attempt.`,
    gone === 0 ? '' : ` ${pluralize(gone, 'entry', 'entries')} not there any more, or in no state for it.`,
  ];
  return `${pluralize(recipients, 'recipient')} of ${pluralize(messages, 'message')} ${words[operation]}.${rest.join('')}`;
}

function countsOf({ requested, changed, recipients, results }: MutationResult) {
  return { requested, changed, recipients, active: results.filter(({ outcome }) => outcome === 'active').length };
}

/** Thousands of uids would fill the audit log. */
function shownSelector({ selector, count }: Chosen): unknown {
  if ('filter' in selector) return { filter: writtenFilter(selector.filter) };
  return count > 20 ? { uids: [...selector.uids.slice(0, 20), `and ${count - 20} more`] } : { uids: selector.uids };
}

/** Without a segment of dots, by which it might leave the queue. */
const ownPath = /^\/client\/queue(?:\/(?!\.)[!-.0->@-[\]-~]+)+(?:\?[!-[\]-~]*)?$/;

/** Own pages only. */
function wayBack(path: string | undefined): string {
  return path !== undefined && ownPath.test(path) ? path : '/client/queue/list';
}
