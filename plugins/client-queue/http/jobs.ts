import { z } from 'zod';
import type { MutationReach } from '../../../core/contracts/relay-queue.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import { pluralize } from '../../../core/text/format.js';
import { type BulkJob, jobStates } from '../queue/bulk-jobs.js';
import { isoTime } from './entry-answer.js';
import { outboundGroup, type QueueDeps } from './client-deps.js';

export const JobAnswer = z.object({
  id: z.string(),
  operation: z.enum(['retry', 'delete', 'bounce', 'hold', 'release']),
  state: z.enum(jobStates).describe('interrupted: by a restart of the server'),
  selection: z.string().describe('What it was started for'),
  total: z.int().describe('Entries'),
  done: z.int().describe('Entries so far'),
  recipients: z.int().describe('That changed'),
  messages: z.int().describe('Whose recipients these are'),
  otherRecipients: z.int().describe('Open recipients of the same messages that stay as they are'),
  active: z.int().describe('Entries being sent: the change applies after that attempt'),
  notFound: z.int(),
  summary: z.string(),
  error: z.string().nullable(),
  canUndo: z.boolean().describe('Undo releases the recipients that a hold has held'),
  by: z.string().nullable(),
  startedAt: z.string(),
  endedAt: z.string().nullable(),
});

const JobParams = z.object({ id: z.string().regex(/^[0-9a-z]{1,40}$/, 'must be the id of a job') });

export const jobPath = (id: string): string => `/client/queue/jobs/${id}`;

/** Bulk actions: how far they are, and what came of them. */
export function jobEndpoints(deps: QueueDeps): readonly AnyEndpoint[] {
  return [listing(deps), reading(deps), cancelling(deps), undoing(deps)];
}

const path = '/client/queue/jobs';
const onePath = '/client/queue/jobs/{id}';

const listing = ({ jobs }: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path,
    summary: 'Bulk actions on the queue, the newest 50',
    group: outboundGroup,
    access: 'read',
    answer: z.object({ items: z.array(JobAnswer) }),
    view: 'jobs.njk',
    cache: 'no-store',
    handle: () => ({ items: jobs.list().map(jobAnswer) }),
  });

const reading = (deps: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path: onePath,
    summary: 'One bulk action: how far it is, or its result',
    group: outboundGroup,
    access: 'read',
    params: JobParams,
    answer: JobAnswer,
    view: 'job.njk',
    cache: 'no-store',
    handle({ params: { id }, request }) {
      const job = jobOf(deps, id);
      const answer = jobAnswer(job);
      return request.representation === 'html' ? { ...answer, title: titles[job.operation], back: job.back } : answer;
    },
  });

const cancelling = (deps: QueueDeps) =>
  defineEndpoint({
    method: 'POST',
    path: `${onePath}/cancel`,
    summary: 'Cancel a running bulk action: what it has changed stays changed',
    group: outboundGroup,
    access: 'operate',
    params: JobParams,
    answer: JobAnswer,
    cache: 'no-store',
    async handle({ params: { id } }) {
      if (!(await deps.jobs.cancel(jobOf(deps, id).id))) throw problem('conflict', 'This job has ended already.');
      const job = jobOf(deps, id);
      return respond({
        status: 200,
        model: jobAnswer(job),
        location: jobPath(id),
        audit: { action: 'queue.cancel', selector: { job: id }, counts: { done: job.done } },
      });
    },
  });

const undoing = (deps: QueueDeps) =>
  defineEndpoint({
    method: 'POST',
    path: `${onePath}/undo`,
    summary: 'Undo a hold: release the recipients that it has held, and no others',
    group: outboundGroup,
    access: 'operate',
    params: JobParams,
    answer: z.object({
      recipients: z.int().describe('That were released'),
      messages: z.int().describe('Whose recipients these are'),
      summary: z.string(),
    }),
    cache: 'no-store',
    async handle({ params: { id } }) {
      const { back } = jobOf(deps, id);
      const held = await deps.jobs.takeUndo(id);
      if (held === undefined) throw problem('conflict', 'There is nothing to undo: only a hold can be undone, once.');
      const { clock, queue } = deps;
      const result = await queue.mutate({ recipients: held }, { operation: 'release' }, clock.now());
      const { recipients, messages } = result;
      const summary = reachText('release', { recipients, messages, otherRecipients: 0 });
      return respond({
        status: 200,
        model: { recipients, messages, summary },
        location: back,
        notice: summary,
        audit: { action: 'queue.undo hold', selector: { job: id }, counts: { recipients, messages } },
      });
    },
  });

function jobOf({ jobs }: QueueDeps, id: string): BulkJob {
  const job = jobs.get(id);
  if (job === undefined) throw problem('not-found', 'There is no such job; the newest 50 are kept.');
  return job;
}

export function jobAnswer(job: BulkJob): z.output<typeof JobAnswer> {
  const { back: _back, held, startedAt, endedAt, ...answer } = job;
  return {
    ...answer,
    summary: reachText(job.operation, job),
    canUndo: held !== null,
    startedAt: isoTime(startedAt),
    endedAt: endedAt === null ? null : isoTime(endedAt),
  };
}

const titles = { retry: 'Retry', delete: 'Delete', bounce: 'Bounce', hold: 'Hold', release: 'Release' } as const;

const words = {
  retry: 'scheduled for retry',
  delete: 'deleted',
  bounce: 'bounced',
  hold: 'held',
  release: 'released',
} as const;

/** What an action has changed, and whom it left alone. */
export function reachText(
  operation: BulkJob['operation'],
  { recipients, messages, otherRecipients }: MutationReach,
): string {
  const who = `${pluralize(recipients, 'recipient')} in ${pluralize(messages, 'message')} ${words[operation]}.`;
  return `${who}${othersText(otherRecipients)}`;
}

/** The recipients that are not affected; empty without any. */
export function othersText(count: number): string {
  if (count === 0) return '';
  return ` ${pluralize(count, 'other recipient of these messages stays as it is', 'other recipients of these messages stay as they are')}.`;
}
