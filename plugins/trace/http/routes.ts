import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import { latestTraces, type Trace, tracesOf } from '../timeline.js';
import type { TraceLog } from '../trace-log.js';

const group = 'Mail';
/** Messages of one page. */
const pageSize = 50;
/** Messages with one Message-ID, or of one session. */
const maxTraces = 20;

const StepAnswer = z.object({
  at: z.iso.datetime(),
  what: z.string(),
  detail: z.string(),
  tone: z.enum(['neutral', 'info', 'good', 'warn', 'bad']),
  href: z.string().nullable().describe('Path of the page about it.'),
});
const TraceAnswer = z.object({
  id: z.string().nullable().describe('Id of the transaction; null for a refusal.'),
  session: z.string(),
  messageId: z.string().nullable(),
  sender: z.string().describe('Empty for the null reverse-path.'),
  recipients: z.array(z.string()),
  at: z.iso.datetime(),
  states: z.array(z.string()).describe('The last state of the recipients, each word once.'),
  steps: z.array(StepAnswer),
});

interface TraceList {
  readonly query: { readonly address: string; readonly since: string };
  readonly items: readonly Omit<Trace, 'steps'>[];
  /** For `before`; null on the last page. */
  readonly next: string | null;
}

/** `/trace` finds messages of an address, `/trace/{id}` shows the steps of one. */
export function traceEndpoints(log: TraceLog): readonly AnyEndpoint[] {
  return [listEndpoint(log), traceEndpoint(log)];
}

const listEndpoint = (log: TraceLog): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/trace',
    success: [200, 303],
    summary: 'Messages from or to an address, or with an id, or the newest of all, with their results',
    group,
    access: 'operate',
    query: z.strictObject({
      address: z
        .string()
        .max(998)
        .default('')
        .describe(
          'An address, a Message-ID, or the id of a message or session; empty: the newest messages, some hundreds.',
        ),
      since: z.iso.datetime().or(z.literal('')).default('').describe('Only messages since that time.'),
      before: z.iso.datetime().optional().describe('Only messages before that time, as `next` gave it.'),
    }),
    answer: z.object({
      query: z.object({ address: z.string(), since: z.string() }),
      items: z.array(TraceAnswer.omit({ steps: true })),
      next: z.string().nullable(),
    }),
    view: 'traces.njk',
    handle: async ({ query, request }) => {
      const { address, since, before } = query;
      const text = address.trim();
      const bounds = { limit: pageSize, ...(before !== undefined && { before: Date.parse(before) }) };
      const found = text === '' ? await latestTraces(log, bounds) : await tracesOf(log, text, bounds);
      const items = found.filter(({ at }) => since === '' || at >= new Date(since).toISOString());
      const next = items.length === pageSize ? (items.at(-1)?.at ?? null) : null;
      const model: TraceList = { query: { address: text, since }, items: items.map(withoutSteps), next };
      const [only, ...others] = items;
      const isOne = text !== '' && only?.id != null && others.length === 0 && before === undefined;
      if (!isOne || request.representation !== 'html') return model;
      return respond({ model, status: 303, headers: { Location: `/trace/${only.id}` } });
    },
  });

function withoutSteps(trace: Trace): Omit<Trace, 'steps'> {
  const { steps: _, ...item } = trace;
  return item;
}

const traceEndpoint = (log: TraceLog): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/trace/{id}',
    summary: 'Every step of a message: connection, acceptance, each delivery, each attempt, notices',
    group,
    access: 'operate',
    params: z.object({
      id: z.string().min(1).max(998).describe('Id of the message, of its queue entry or session, or its Message-ID.'),
    }),
    answer: z.object({ id: z.string(), traces: z.array(TraceAnswer) }),
    view: 'trace.njk',
    handle: async ({ params: { id } }) => {
      const traces = await tracesOf(log, id, { limit: maxTraces });
      if (traces.length === 0)
        throw problem('not-found', 'Nothing is known of that id: it is too old, or not of this server.');
      return { id, traces };
    },
  });
