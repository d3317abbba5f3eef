import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import type { OtherNodes } from '../../../core/contracts/other-nodes.js';
import { logLevels } from '../../../core/log/log.js';
import { fullLine } from '../../../core/log/line.js';
import { problem } from '../../../core/problem.js';
import { parseMoment, wordsOf, type LogFilter } from '../logs/log-filter.js';
import { entryOf, placeName, readPlace, shownLine } from '../logs/log-page.js';
import type { FoundLine, LogPlace, LogSearch } from '../logs/log-search.js';
import type { LogTail } from '../logs/log-tail.js';

const group = 'Service';

const filters = {
  query: z.string().max(500).optional().describe('Words that must all occur in a line; quotes keep a phrase together.'),
  q: z.string().max(500).optional().describe('The same as query.'),
  level: z.enum(logLevels).optional().describe('That level and graver ones.'),
  node: z
    .string()
    .max(63)
    .optional()
    .describe('The node of a cluster whose log it is; by default the one that is asked.'),
};
const Filters = z.strictObject(filters);
const Query = z.strictObject({
  ...filters,
  since: z.string().max(40).optional().describe('So long ago (15m, 2h, 7d), or an ISO 8601 time (UTC).'),
  until: z.string().max(40).optional().describe('Like since.'),
  limit: z.int().min(1).max(1000).default(100).describe('Lines that match, the newest of them.'),
  context: z.int().min(0).max(50).optional().describe('Lines before and after each that matches.'),
  cursor: z.string().max(80).optional().describe('Where older lines go on: nextCursor of an answer.'),
  at: z.string().max(80).optional().describe('One line, by its place, with the lines around it.'),
  live: z.enum(['on', 'off']).default('off').describe('Whether the page adds new lines as they come.'),
});
type LogsQuery = z.output<typeof Query>;

const Answer = z.object({
  items: z.array(
    z.object({
      at: z.string().describe('File and byte: a permanent address of the line.'),
      matched: z.boolean().describe('False for lines of the context.'),
      line: z.record(z.string(), z.unknown()).describe('As it was logged.'),
    }),
  ),
  total: z
    .int()
    .min(0)
    .max(2 ** 40)
    .nullable()
    .describe('Lines that match; null when not all of the log was looked at.'),
  limit: z.int().min(1).max(1000),
  nextCursor: z.string().nullable().describe('Leads to older lines.'),
  prevCursor: z.null(),
});

interface Logs {
  readonly items: readonly { readonly at: string; readonly matched: boolean; readonly line: object }[];
  readonly total: number | null;
  readonly limit: number;
  readonly nextCursor: string | null;
  readonly prevCursor: null;
}

interface Found {
  readonly lines: readonly FoundLine[];
  readonly next: LogPlace | undefined;
  readonly words: readonly string[];
}

export interface LogDeps {
  readonly search: LogSearch;
  readonly tail: LogTail;
  readonly clock: Clock;
  /** The nodes of the cluster; undefined without one. */
  readonly nodes: OtherNodes | undefined;
}

export function logEndpoints(deps: LogDeps): readonly AnyEndpoint[] {
  return [logsEndpoint(deps), streamEndpoint(deps)];
}

function filterOf({ query, q, level }: z.output<typeof Filters>): LogFilter {
  return { words: wordsOf(q ?? query ?? ''), level, since: undefined, until: undefined };
}

async function find({ search, clock }: LogDeps, query: LogsQuery, request: EndpointRequest): Promise<Found> {
  const filter = filterOf(query);
  if (query.at !== undefined) {
    const place = placeOf('at', query.at);
    const lines = await search.around(place, query.context ?? 10);
    if (lines === undefined) throw problem('not-found', 'That line is not in the log any more.');
    return { lines, next: undefined, words: filter.words };
  }
  const { lines, next } = await search.find({
    ...filter,
    since: parseMoment('since', query.since, clock.now()),
    until: parseMoment('until', query.until, clock.now()),
    limit: query.limit,
    context: query.context ?? 0,
    before: query.cursor === undefined ? undefined : placeOf('cursor', query.cursor),
    signal: request.signal,
  });
  return { lines, next, words: filter.words };
}

function placeOf(name: string, text: string): LogPlace {
  const place = readPlace(text);
  if (place !== undefined) return place;
  const message = 'must be a place that an answer named';
  throw problem('bad-request', { detail: `The parameter ${name} ${message}.`, errors: [{ pointer: name, message }] });
}

function modelOf({ lines, next }: Found, { limit, cursor, at }: LogsQuery): Logs {
  const whole = next === undefined && cursor === undefined && at === undefined;
  return {
    items: lines.map((line) => ({ at: placeName(line), matched: line.matched, line: entryOf(line.text) })),
    total: whole ? lines.filter(({ matched }) => matched).length : null,
    limit,
    nextCursor: next === undefined ? null : placeName(next),
    prevCursor: null,
  };
}

const texts = {
  text: {
    contentType: 'text/plain; charset=utf-8',
    write: (line: FoundLine): string => `${line.gap ? '--\n' : ''}${fullLine(line.text)}`,
  },
  ndjson: {
    contentType: 'application/x-ndjson; charset=utf-8',
    write: (line: FoundLine): string => `${line.text}\n`,
  },
} as const;

/** Of a node that is not known, that asks further, or that does not answer. */
const nodeProblems = ['not-found', 'misdirected', 'unavailable'] as const;

function logsEndpoint(deps: LogDeps): AnyEndpoint {
  /** Fields of the page, which are not in the JSON. */
  const found = new WeakMap<Logs, Found>();
  return defineEndpoint({
    method: 'GET',
    path: '/logs',
    summary: 'The server log: search, newest last',
    group,
    access: 'admin',
    query: Query,
    answer: Answer,
    produces: ['html', 'json', 'text', 'ndjson'],
    fallback: 'text',
    view: 'logs.njk',
    cache: 'no-store',
    problems: nodeProblems,
    nodeOf: ({ query }) => query.node,
    page: (model: Logs, { query }) => pageOf(model, found.get(model), query, deps.nodes),
    handle: async ({ query, request }) => {
      const result = await find(deps, query, request);
      const { representation } = request;
      const headers: Record<string, string> =
        result.next === undefined ? {} : { 'X-Next-Cursor': placeName(result.next) };
      if (representation === 'text' || representation === 'ndjson') {
        const { contentType, write } = texts[representation];
        return respond<Logs>({ text: { body: result.lines.map(write).join(''), contentType }, headers });
      }
      const model = modelOf(result, query);
      found.set(model, result);
      return respond({ model });
    },
  });
}

function pageOf(model: Logs, found: Found | undefined, query: LogsQuery, nodes: OtherNodes | undefined): object {
  const q = query.q ?? query.query ?? '';
  const { level = '', since = '', until = '', node = '', limit, live } = query;
  const names = nodes?.names() ?? [];
  const asked = {
    node,
    q,
    level,
    since,
    until,
    limit: limit === 100 ? '' : String(limit),
    context: query.context ?? '',
  };
  const shown = (found?.lines ?? []).map((line) => shownLine(line, found?.words ?? [], node));
  return {
    ...model,
    ...asked,
    at: query.at ?? null,
    older: query.cursor !== undefined,
    live: live === 'on' && query.at === undefined && query.cursor === undefined,
    lines: shown,
    matches: shown.filter(({ matched }) => matched).length,
    context: query.context ?? 0,
    levels: [
      { value: '', label: 'every level' },
      ...logLevels.map((value) => ({ value, label: `${value} and graver` })),
    ],
    // By name, since a page of another node is shown by the one that was asked.
    nodes: names.length > 1 ? names.map((value) => ({ value, label: value })) : [],
    ownNode: nodes?.node ?? '',
    plainPath: pathWith('/logs', { node }),
    contexts: [0, 3, 10].map((value) => ({ value, label: value === 0 ? 'none' : `${value} lines` })),
    stream: pathWith('/logs/stream', { node, q, level }),
    nowPath: pathWith('/logs', asked),
    livePath: pathWith('/logs', { ...asked, live: 'on' }),
    olderPath: model.nextCursor === null ? null : pathWith('/logs', { ...asked, cursor: model.nextCursor }),
    downloadPath: pathWith('/logs', { ...asked, limit: '1000', format: 'ndjson' }),
  };
}

function pathWith(path: string, fields: Readonly<Record<string, string | number>>): string {
  const given = Object.entries(fields).filter(([, value]) => value !== '' && value !== 0);
  return given.length === 0
    ? path
    : `${path}?${new URLSearchParams(Object.fromEntries(given.map(([name, value]) => [name, String(value)]))).toString()}`;
}

const streamEndpoint = ({ tail }: LogDeps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/logs/stream',
    summary: 'The server log as it is written, as server-sent events',
    group,
    access: 'admin',
    query: Filters,
    problems: nodeProblems,
    nodeOf: ({ query }) => query.node,
    produces: ['events'],
    fallback: 'events',
    cache: 'no-store',
    handle: ({ query, request }) =>
      respond({
        stream: {
          source: tail.open(filterOf(query), request.signal),
          contentType: 'text/event-stream; charset=utf-8',
        },
        // Tells proxies not to buffer the stream.
        headers: { 'X-Accel-Buffering': 'no' },
      }),
  });
