import type { MetricObjectWithValues, MetricValue } from 'prom-client';

export type ExpositionFormat = 'prometheus' | 'openmetrics';
export type CollectedMetric = MetricObjectWithValues<MetricValue<string>>;

export const contentTypes: Readonly<Record<ExpositionFormat, string>> = {
  prometheus: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/**
 * Prometheus text format 0.0.4 or OpenMetrics 1.0 of what the metrics hold.
 *
 * prom-client's own writer takes `_total` off the names of its counters for good when it writes OpenMetrics, spells NaN
 * in its own way, and lets line ends other than LF through.
 */
export function expose(metrics: readonly CollectedMetric[], format: ExpositionFormat): string {
  const blocks = metrics.map((metric) => block(metric, format));
  return `${blocks.join('')}${format === 'openmetrics' ? '# EOF\n' : ''}`;
}

function block(metric: CollectedMetric, format: ExpositionFormat): string {
  const type = String(metric.type);
  const family = format === 'openmetrics' && type === 'counter' ? metric.name.replace(/_total$/, '') : metric.name;
  const help = format === 'openmetrics' ? escapeValue(metric.help) : escapeHelp(metric.help);
  const samples = metric.values.map((value) => sample(metric.name, value));
  return `# HELP ${family} ${help}\n# TYPE ${family} ${type}\n${samples.join('')}`;
}

function sample(family: string, value: MetricValue<string> & { readonly metricName?: string }): string {
  let labels = '';
  for (const name in value.labels) {
    labels += `${labels === '' ? '{' : ','}${name}="${escapeValue(String(value.labels[name]))}"`;
  }
  return `${value.metricName ?? family}${labels === '' ? '' : `${labels}}`} ${number(value.value)}\n`;
}

const number = (value: number): string =>
  Number.isFinite(value) || Number.isNaN(value) ? `${value}` : value < 0 ? '-Inf' : '+Inf';

/** Everything that some reader takes for the end of a line, but LF, which the formats can escape. */
const oneLine = (text: string): string => text.replace(/[^\P{Cc}\n]|[\u2028\u2029]/gu, '\ufffd');
const escapeHelp = (text: string): string => oneLine(text).replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
/** Nearly every value; there are thousands of them in a scrape. */
const plain = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;
const escapeValue = (text: string): string => (plain.test(text) ? text : escapeHelp(text).replaceAll('"', '\\"'));
