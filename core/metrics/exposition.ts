import type { Counter, Gauge, Histogram, MetricObjectWithValues, MetricValue } from 'prom-client';

export type ExpositionFormat = 'prometheus' | 'openmetrics';
export type CollectedMetric = MetricObjectWithValues<MetricValue<string>>;
export type Metric = Counter | Gauge | Histogram;

export const contentTypes: Readonly<Record<ExpositionFormat, string>> = {
  prometheus: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/** One set of labels, as prom-client keeps it. */
interface Series {
  readonly labels: Readonly<Record<string, unknown>>;
  readonly value?: number;
  /** Of a histogram, by upper bound; each observation is in one of them at most. */
  readonly bucketValues?: Readonly<Record<string, number>>;
  readonly count?: number;
  readonly sum?: number;
}

interface WrittenSeries {
  readonly value: number | undefined;
  readonly count: number | undefined;
  readonly bucketValues: Series['bucketValues'] | undefined;
  readonly labels: string;
  readonly lines: string;
}

/** What prom-client's metrics have beside their public functions. */
interface Inner extends Described {
  readonly hashMap: Readonly<Record<string, Series>>;
  /** Of a histogram. */
  readonly upperBounds?: readonly number[];
}

/**
 * Text of one metric in Prometheus text format 0.0.4 or OpenMetrics 1.0. Only series that changed since the last scrape are
 * written anew.
 *
 * prom-client's own writer permanently removes `_total` from counter names in OpenMetrics, spells NaN differently, and
 * lets line ends other than LF through. It also copies every value of every series for each scrape.
 */
export class MetricText {
  readonly #metric: Inner;
  readonly #heads: Readonly<Record<ExpositionFormat, string>>;
  /** By prom-client's key of the labels. */
  readonly #written = new Map<string, WrittenSeries>();
  #lines = '';

  constructor(metric: Metric) {
    this.#metric = metric as unknown as Inner;
    this.#heads = { prometheus: headOf(this.#metric, 'prometheus'), openmetrics: headOf(this.#metric, 'openmetrics') };
  }

  render(format: ExpositionFormat): string {
    return `${this.#heads[format]}${this.#currentLines()}`;
  }

  #currentLines(): string {
    const { hashMap, name, upperBounds = [] } = this.#metric;
    let isSame = true;
    let count = 0;
    for (const key in hashMap) {
      const series = hashMap[key];
      if (series === undefined) continue;
      count += 1;
      const before = this.#written.get(key);
      if (before !== undefined && isUnchanged(before, series)) continue;
      const labels = before?.labels ?? labelsOf(series.labels);
      const { value, bucketValues } = series;
      const lines =
        bucketValues === undefined
          ? lineOf(name, labels, value)
          : linesOf(name, labels, { ...series, bucketValues, upperBounds });
      this.#written.set(key, { value, count: series.count, bucketValues, labels, lines });
      isSame = false;
    }
    if (isSame && count === this.#written.size) return this.#lines;
    for (const key of this.#written.keys()) if (hashMap[key] === undefined) this.#written.delete(key);
    this.#lines = Object.keys(hashMap)
      .map((key) => this.#written.get(key)?.lines ?? '')
      .join('');
    return this.#lines;
  }
}

/** A histogram's series stays the same object, and counts; a gauge's is another one whenever it is set. */
const isUnchanged = (before: WrittenSeries, { value, count, bucketValues }: Series): boolean =>
  Object.is(before.value, value) && before.count === count && before.bucketValues === bucketValues;

const lineOf = (name: string, labels: string, value = 0): string =>
  `${name}${labels === '' ? '' : `{${labels}}`} ${number(value)}\n`;

interface HistogramSeries extends Series {
  readonly bucketValues: Readonly<Record<string, number>>;
  readonly upperBounds: readonly number[];
}

function linesOf(name: string, labels: string, { bucketValues, upperBounds, sum, count = 0 }: HistogramSeries): string {
  const more = labels === '' ? '' : `,${labels}`;
  let below = 0;
  let lines = '';
  for (const bound of upperBounds) {
    below += bucketValues[bound] ?? 0;
    lines += `${name}_bucket{le="${bound}"${more}} ${below}\n`;
  }
  lines += `${name}_bucket{le="+Inf"${more}} ${count}\n`;
  return `${lines}${lineOf(`${name}_sum`, labels, sum)}${lineOf(`${name}_count`, labels, count)}`;
}

/** Text of metrics that were collected by prom-client. */
export function expose(metrics: readonly CollectedMetric[], format: ExpositionFormat): string {
  const blocks = metrics.map((metric) => {
    const lines = metric.values.map(
      ({ labels, value, metricName = metric.name }: MetricValue<string> & { readonly metricName?: string }) =>
        lineOf(metricName, labelsOf(labels), value),
    );
    return `${headOf({ ...metric, type: String(metric.type) }, format)}${lines.join('')}`;
  });
  return blocks.join('');
}

interface Described {
  readonly name: string;
  readonly help: string;
  readonly type: string;
}

function headOf({ name, help, type }: Described, format: ExpositionFormat): string {
  const family = format === 'openmetrics' && type === 'counter' ? name.replace(/_total$/, '') : name;
  return `# HELP ${family} ${format === 'openmetrics' ? escapeValue(help) : escapeHelp(help)}\n# TYPE ${family} ${type}\n`;
}

function labelsOf(labels: Readonly<Record<string, unknown>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapeValue(String(value))}"`);
  return pairs.join(',');
}

const number = (value: number): string =>
  Number.isFinite(value) || Number.isNaN(value) ? `${value}` : value < 0 ? '-Inf' : '+Inf';

/** Replaces line ends other than LF, which the formats can escape. */
const oneLine = (text: string): string => text.replace(/[^\P{Cc}\n]|[\u2028\u2029]/gu, '\ufffd');
const escapeHelp = (text: string): string => oneLine(text).replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
/** Fast path: nearly every value, and a scrape has thousands. */
const plain = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;
const escapeValue = (text: string): string => (plain.test(text) ? text : escapeHelp(text).replaceAll('"', '\\"'));
