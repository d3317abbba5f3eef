import type { Chart, ChartUnit } from './charts.js';
import type { HistoryPart } from './history.js';

/** The drawing's own units; the page stretches it. */
export const WIDTH = 600;
export const HEIGHT = 120;
const TABLE_ROWS = 12;

export interface DrawnSeries {
  readonly label: string;
  /** The newest value, or null when there is none. */
  readonly last: string;
  /** SVG path data; empty when there is nothing to draw. */
  readonly path: string;
  readonly promql: string;
}

export interface DrawnChart {
  readonly id: string;
  readonly title: string;
  /** In words, for those who do not see it. */
  readonly summary: string;
  /** What the upper edge stands for. */
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

/** Breaks where values are missing, also for longer than `gapMs`. A lone point becomes a short stroke. */
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
function roundUp(value: number, unit: ChartUnit): number {
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

export function formatValue(unit: ChartUnit, value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (unit === 'share') return `${round(value * 100)} %`;
  if (unit === 'rate') return `${round(value)}/s`;
  if (unit === 'perMinute') return `${round(value)}/min`;
  if (unit === 'count') return round(value);
  if (unit === 'seconds') return formatSeconds(value);
  const step = value < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${round(value / 1024 ** step)} ${['B', 'KB', 'MB', 'GB', 'TB'][step] ?? ''}`;
}

function formatSeconds(value: number): string {
  if (value < 1) return `${round(value * 1000)} ms`;
  if (value < 120) return `${round(value)} s`;
  if (value < 7200) return `${round(value / 60)} min`;
  return value < 172_800 ? `${round(value / 3600)} h` : `${round(value / 86_400)} d`;
}

/** Three digits are enough to see by. */
const round = (value: number): string =>
  value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(value < 0.1 ? 2 : 3)));
