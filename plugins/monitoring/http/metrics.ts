import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import type { HealthOverview, MetricsExposition } from '../../../core/contracts/server.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { formatValue } from '../../../core/text/format.js';
import { charts, drawChart, HEIGHT, WIDTH } from '../charts/charts.js';
import { graphiteLines, type GraphiteOptions } from '../graphite.js';
import { fullHealth } from '../health.js';
import type { MetricHistory } from '../charts/history.js';

const group = 'Service';

const periods = { '15m': 900, '1h': 3600, '6h': 21_600, '24h': 86_400 } as const;
const Period = z.enum(['15m', '1h', '6h', '24h']);
const Query = z.strictObject({ period: Period.default('1h').describe('How far back.') });

const number = (): z.ZodNumber =>
  z
    .number()
    .min(-(2 ** 60))
    .max(2 ** 60);
const Answer = z.object({
  period: Period,
  step: z.int().min(1).max(3600).describe('Seconds between two values.'),
  times: z.array(z.iso.datetime()),
  charts: z.array(
    z.object({
      id: z.string(),
      title: z.string(),
      unit: z.enum(['rate', 'perMinute', 'seconds', 'bytes', 'count', 'share']),
      series: z.array(
        z.object({
          id: z.string(),
          label: z.string(),
          promql: z.string(),
          values: z.array(number().nullable()).describe('One for each of times; null when there is none.'),
        }),
      ),
    }),
  ),
});
type History = z.output<typeof Answer>;
type PeriodName = z.output<typeof Period>;

export interface MetricsDeps {
  readonly metrics: MetricsExposition;
  readonly history: MetricHistory;
  readonly health: HealthOverview;
  readonly clock: Clock;
  readonly graphite: () => GraphiteOptions;
}

export function metricsEndpoints(deps: MetricsDeps): readonly AnyEndpoint[] {
  return [metricsEndpoint(deps), historyEndpoint(deps), graphiteEndpoint(deps)];
}

function modelOf(history: MetricHistory, period: PeriodName): History {
  const part = history.last(periods[period]);
  const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);
  return {
    period,
    step: part.step,
    times: part.times.map((time) => new Date(time).toISOString()),
    charts: history.shown(charts).map(({ id, title, unit, series }) => ({
      id,
      title,
      unit,
      series: series.map((source) => ({
        id: source.id,
        label: source.label,
        promql: source.promql,
        values: (part.values.get(source.id) ?? []).map(finite),
      })),
    })),
  };
}

const metricsEndpoint = ({ metrics, history, health, clock }: MetricsDeps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics as charts; for a scraper, the exposition',
    group,
    access: 'read',
    query: Query,
    answer: Answer,
    produces: ['html', 'json', 'openmetrics', 'text'],
    fallback: 'html',
    view: 'metrics.njk',
    cache: 'no-store',
    page: (_: History, { query }) => pageOf(history, health, clock, query.period),
    handle: async ({ query, request }) => {
      const { representation } = request;
      if (representation === 'openmetrics' || representation === 'text') {
        return respond<History>({
          text: await metrics.render(representation === 'text' ? 'prometheus' : 'openmetrics'),
        });
      }
      return modelOf(history, query.period);
    },
  });

function pageOf(history: MetricHistory, health: HealthOverview, clock: Clock, period: PeriodName): object {
  const now = clock.now();
  const part = history.last(periods[period]);
  const from = now - periods[period] * 1000;
  const { status, uptime } = fullHealth(health);
  const last = (id: string): number => part.values.get(id)?.at(-1) ?? Number.NaN;
  return {
    period,
    seconds: periods[period],
    periods: Period.options.map((name) => ({
      title: name,
      href: `/metrics?period=${name}`,
      current: name === period,
    })),
    status,
    uptime,
    from: new Date(from).toISOString(),
    to: new Date(now).toISOString(),
    width: WIDTH,
    height: HEIGHT,
    points: part.times.length,
    stats: [
      { label: 'Accepted', value: formatValue('rate', last('accepted')), hint: 'messages' },
      {
        label: 'Refused',
        value: formatValue('rate', last('deferred') + last('rejected')),
        hint: 'temporarily and permanently',
      },
      {
        label: 'Accept time, p95',
        value: formatValue('seconds', last('delivery95')),
        hint: 'from the end of a message to its 250',
      },
      ...queueStat(last),
      { label: 'Sessions', value: formatValue('count', last('sessions')), hint: 'open' },
      { label: 'Event loop', value: formatValue('seconds', last('lag')), hint: 'p99 delay' },
      { label: 'Memory', value: formatValue('bytes', last('resident')), hint: 'of the process' },
    ],
    charts: history.shown(charts).map((chart) => drawChart(chart, part, from, now)),
  };
}

/** Omitted without a queue. */
function queueStat(last: (id: string) => number): readonly { label: string; value: string; hint: string }[] {
  const open = ['queued', 'active', 'deferred', 'held'].map((state) => last(`queue_${state}`));
  const age = last('queueAge');
  if (!open.every((count) => Number.isFinite(count))) return [];
  const waiting = open.reduce((all, count) => all + count, 0);
  const hint = waiting > 0 && Number.isFinite(age) ? `oldest ${formatValue('seconds', age)}` : 'nothing waits';
  return [{ label: 'Queue', value: formatValue('count', waiting), hint }];
}

const historyEndpoint = ({ history }: MetricsDeps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/metrics/history',
    summary: 'Data of the charts: an hour in steps of ten seconds, a day in minutes',
    group,
    access: 'read',
    query: Query,
    answer: Answer,
    cache: 'no-store',
    handle: ({ query }): History => modelOf(history, query.period),
  });

const graphiteEndpoint = ({ metrics, graphite, clock }: MetricsDeps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/metrics/graphite',
    summary: 'Metrics as lines of Graphite: path value seconds',
    group,
    access: 'read',
    query: z.strictObject({
      prefix: z
        .string()
        .max(100)
        .regex(/^[\w-]+(?:\.[\w-]+)*$/)
        .optional()
        .describe('Dotted path before every name, instead of the configured one.'),
      names: z
        .enum(['tagged', 'flat'])
        .optional()
        .describe('Labels as tags or as parts of the path, instead of what is configured.'),
    }),
    produces: ['text'],
    fallback: 'text',
    cache: 'no-store',
    handle: async ({ query }) => {
      const { prefix = graphite().prefix, names = graphite().names } = query;
      const body = graphiteLines(await metrics.collect(), { prefix, names }, clock.now());
      return respond({ text: { body, contentType: 'text/plain; charset=utf-8' } });
    },
  });
