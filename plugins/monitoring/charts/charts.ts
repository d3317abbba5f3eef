import { formatValue, type ValueUnit } from '../../../core/text/format.js';

type Labels = Readonly<Record<string, string>>;

/** One line of a chart: how it is computed from the metrics, here and in Prometheus. */
export interface SeriesSource {
  readonly id: string;
  readonly label: string;
  /**
   * `rate` of a counter per second, the sum of a `gauge`, a `quantile` of a histogram, or a rate as a `share` of
   * another.
   */
  readonly kind: 'rate' | 'gauge' | 'quantile' | 'share';
  readonly metric: string;
  readonly where?: Labels;
  readonly quantile?: number;
  /** Factor of a rate. */
  readonly factor?: number;
  /** Of a share: the counter of the whole. */
  readonly of?: string;
  readonly promql: string;
}

export interface Chart {
  readonly id: string;
  readonly title: string;
  readonly unit: ValueUnit;
  /** Hidden until one of its metrics is registered. */
  readonly optional?: true;
  readonly series: readonly SeriesSource[];
}

const selector = (metric: string, where: Labels | undefined): string => {
  const labels = Object.entries(where ?? {}).map(([name, value]) => `${name}="${value}"`);
  return labels.length === 0 ? metric : `${metric}{${labels.join(', ')}}`;
};

const rate = (id: string, label: string, metric: string, where?: Labels): SeriesSource => ({
  id,
  label,
  kind: 'rate',
  metric,
  ...(where && { where }),
  promql: `sum(rate(${selector(metric, where)}[5m]))`,
});
const perMinute = (id: string, label: string, metric: string, where: Labels): SeriesSource => ({
  ...rate(id, label, metric, where),
  factor: 60,
  promql: `sum(rate(${selector(metric, where)}[5m])) * 60`,
});
const gauge = (id: string, label: string, metric: string, where?: Labels): SeriesSource => ({
  id,
  label,
  kind: 'gauge',
  metric,
  ...(where && { where }),
  promql: `sum(${selector(metric, where)})`,
});
const quantile = (id: string, percent: number, metric: string): SeriesSource => ({
  id,
  label: `${percent} %`,
  kind: 'quantile',
  metric,
  quantile: percent / 100,
  promql: `histogram_quantile(${percent / 100}, sum by (le) (rate(${metric}_bucket[5m])))`,
});

/** Most important first: whether mail flows, then what it costs. */
export const charts: readonly Chart[] = [
  {
    id: 'flow',
    title: 'Messages',
    unit: 'rate',
    series: [
      rate('accepted', 'accepted', 'postern_mail_accepted_total'),
      rate('deferred', 'refused for now (4xx)', 'postern_mail_rejected_total', { class: '4xx' }),
      rate('rejected', 'refused permanently (5xx)', 'postern_mail_rejected_total', { class: '5xx' }),
    ],
  },
  {
    id: 'delivery',
    title: 'Time to accept a message',
    unit: 'seconds',
    series: [
      quantile('delivery50', 50, 'postern_mail_delivery_seconds'),
      quantile('delivery95', 95, 'postern_mail_delivery_seconds'),
      quantile('delivery99', 99, 'postern_mail_delivery_seconds'),
    ],
  },
  {
    id: 'deliveries',
    title: 'Local deliveries by result',
    unit: 'rate',
    series: [
      rate('delivered', 'delivered', 'postern_mail_deliveries_total', { result: 'delivered' }),
      rate('postponed', 'deferred', 'postern_mail_deliveries_total', { result: 'deferred' }),
      rate('bounced', 'bounced', 'postern_mail_deliveries_total', { result: 'bounced' }),
    ],
  },
  {
    id: 'queue',
    title: 'Queue',
    unit: 'count',
    optional: true,
    series: ['queued', 'active', 'deferred', 'held'].map((state) =>
      gauge(`queue_${state}`, state, 'postern_queue_entries', { state }),
    ),
  },
  {
    id: 'queueAge',
    title: 'Age of the oldest entry of the queue',
    unit: 'seconds',
    optional: true,
    series: [gauge('queueAge', 'oldest', 'postern_queue_oldest_age_seconds')],
  },
  {
    id: 'outbound',
    title: 'Outbound recipients a minute',
    unit: 'perMinute',
    optional: true,
    series: ['delivered', 'deferred', 'bounced'].map((result) =>
      perMinute(`outbound_${result}`, result, 'postern_outbound_results_total', { result }),
    ),
  },
  {
    id: 'attempts',
    title: 'Outbound attempt duration',
    unit: 'seconds',
    optional: true,
    series: [
      quantile('attempt50', 50, 'postern_outbound_attempt_seconds'),
      quantile('attempt95', 95, 'postern_outbound_attempt_seconds'),
    ],
  },
  {
    id: 'outboundConnections',
    title: 'Outbound connections',
    unit: 'count',
    optional: true,
    series: ['busy', 'idle', 'awaited'].map((state) =>
      gauge(`connections_${state}`, state, 'postern_outbound_connections', { state }),
    ),
  },
  {
    id: 'commit',
    title: 'Writing to mailboxes',
    unit: 'seconds',
    series: [
      quantile('commit50', 50, 'postern_store_commit_seconds'),
      quantile('commit95', 95, 'postern_store_commit_seconds'),
    ],
  },
  {
    id: 'sessions',
    title: 'SMTP sessions open',
    unit: 'count',
    series: [gauge('sessions', 'open', 'postern_smtp_sessions_open')],
  },
  {
    id: 'connections',
    title: 'SMTP connections',
    unit: 'rate',
    series: [
      rate('opened', 'opened', 'postern_smtp_sessions_total'),
      rate('turnedAway', 'turned away', 'postern_smtp_sessions_refused_total'),
      rate('authFailures', 'failed sign-ins', 'postern_smtp_auth_total', { result: 'refused' }),
    ],
  },
  {
    id: 'tls',
    title: 'Sessions that use TLS',
    unit: 'share',
    series: [
      {
        id: 'tls',
        label: 'share',
        kind: 'share',
        metric: 'postern_smtp_tls_sessions_total',
        of: 'postern_smtp_sessions_total',
        promql: 'sum(rate(postern_smtp_tls_sessions_total[5m])) / sum(rate(postern_smtp_sessions_total[5m]))',
      },
    ],
  },
  {
    id: 'http',
    title: 'HTTP requests',
    unit: 'rate',
    series: [
      rate('requests', 'all', 'postern_http_requests_total'),
      rate('refused', '4xx', 'postern_http_requests_total', { status: '4xx' }),
      rate('failed', '5xx', 'postern_http_requests_total', { status: '5xx' }),
    ],
  },
  {
    id: 'httpSeconds',
    title: 'HTTP answers',
    unit: 'seconds',
    series: [
      quantile('http50', 50, 'postern_http_request_seconds'),
      quantile('http95', 95, 'postern_http_request_seconds'),
    ],
  },
  {
    id: 'loop',
    title: 'Delay of the event loop',
    unit: 'seconds',
    series: [gauge('lag', '99 %', 'postern_event_loop_lag_seconds')],
  },
  {
    id: 'memory',
    title: 'Memory',
    unit: 'bytes',
    series: [
      gauge('resident', 'of the process', 'process_resident_memory_bytes'),
      gauge('heap', 'heap in use', 'nodejs_heap_size_used_bytes'),
    ],
  },
  {
    id: 'cpu',
    title: 'Processor time',
    unit: 'share',
    series: [rate('cpu', 'of one processor', 'process_cpu_seconds_total')],
  },
  {
    id: 'descriptors',
    title: 'Open file descriptors',
    unit: 'count',
    series: [gauge('descriptors', 'open', 'process_open_fds')],
  },
  {
    id: 'disk',
    title: 'Free on the disk of the data folder',
    unit: 'bytes',
    series: [gauge('disk', 'free', 'postern_disk_free_bytes')],
  },
];

/** Units of the drawing; the page scales it. */
export const WIDTH = 600;
export const HEIGHT = 120;
const TABLE_ROWS = 12;

interface DrawnSeries {
  readonly label: string;
  /** The newest value, or null when there is none. */
  readonly last: string;
  /** SVG path data; empty when there is nothing to draw. */
  readonly path: string;
  readonly promql: string;
}

interface DrawnChart {
  readonly id: string;
  readonly title: string;
  /** Text alternative. */
  readonly summary: string;
  /** Value of the upper edge. */
  readonly top: string;
  readonly series: readonly DrawnSeries[];
  readonly rows: readonly { readonly time: string; readonly values: readonly string[] }[];
}

/** @param from and `to` are milliseconds since 1970 */
export function drawChart(chart: Chart, part: HistoryPart, from: number, to: number): DrawnChart {
  const { times, values } = part;
  const lines = chart.series.map(({ id }) => values.get(id) ?? []);
  const highest = Math.max(0, ...lines.flat().filter((value) => Number.isFinite(value)));
  const top = chart.unit === 'share' && highest <= 1 ? 1 : roundUp(highest, chart.unit);
  const x = (time: number): number => ((time - from) / (to - from)) * WIDTH;
  const y = (value: number): number => HEIGHT - (value / top) * (HEIGHT - 4) - 2;
  const series = chart.series.map(({ label, promql }, i) => ({
    label,
    promql,
    last: formatValue(chart.unit, lines[i]?.at(-1) ?? Number.NaN),
    path: pathOf(times, lines[i] ?? [], x, y, part.step * 2500),
  }));
  const stride = Math.max(1, Math.ceil(times.length / TABLE_ROWS));
  const rows = times
    .map((time, i) => ({
      time: new Date(time).toISOString(),
      values: lines.map((line) => formatValue(chart.unit, line[i] ?? Number.NaN)),
    }))
    .toReversed()
    .filter((_, i) => i % stride === 0);
  const summary = series.map(({ label, last }) => `${label} ${last}`).join(', ');
  return { id: chart.id, title: chart.title, summary, top: formatValue(chart.unit, top), series, rows };
}

/**
 * Gaps where values are missing, and where points are more than `gapMs` apart. A single point becomes a short stroke.
 */
function pathOf(
  times: readonly number[],
  values: readonly number[],
  x: (time: number) => number,
  y: (value: number) => number,
  gapMs: number,
): string {
  const pieces: string[] = [];
  let drawnAt: number | undefined;
  for (const [i, time] of times.entries()) {
    const value = values[i] ?? Number.NaN;
    if (!Number.isFinite(value)) {
      drawnAt = undefined;
      continue;
    }
    const point = `${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    const joined = drawnAt !== undefined && time - drawnAt <= gapMs;
    pieces.push(joined ? `L${point}` : `M${point}h1`);
    drawnAt = time;
  }
  return pieces.join('');
}

/** The next 1, 2 or 5 times a power of ten: of bytes, KB, MB …, of seconds, minutes, hours or days. */
function roundUp(value: number, unit: ValueUnit): number {
  if (value <= 0) return 1;
  const base = unit === 'bytes' ? 1024 ** Math.floor(Math.log2(value) / 10) : unit === 'seconds' ? timeUnit(value) : 1;
  const scale = 10 ** Math.floor(Math.log10(value / base));
  const factor = [1, 2, 5, 10].find((one) => one * scale * base >= value) ?? 10;
  return factor * scale * base;
}

function timeUnit(seconds: number): number {
  if (seconds > 72_000) return 86_400;
  if (seconds > 6000) return 3600;
  return seconds > 100 ? 60 : 1;
}

/** The values of all series over a period, oldest first. */
export interface HistoryPart {
  /** Seconds between two points. */
  readonly step: number;
  /** Milliseconds since 1970. */
  readonly times: readonly number[];
  readonly values: ReadonlyMap<string, readonly number[]>;
}
