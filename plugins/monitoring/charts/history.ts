import type { Clock } from '../../../core/clock.js';
import type { MetricFamily, MetricSample, MetricsExposition } from '../../../core/contracts/server.js';
import type { Chart, HistoryPart, SeriesSource } from './charts.js';

/** Seconds between two samples. */
export const STEP_SECONDS = 10;
const FINE_POINTS = 360;
const COARSE_STEPS = 6;
const COARSE_POINTS = 1440;

/** The last values of a fixed number of series, in memory allocated at the start. */
class Rows {
  readonly #width: number;
  readonly #size: number;
  readonly #times: Float64Array;
  readonly #values: Float64Array;
  #count = 0;

  constructor(size: number, width: number) {
    this.#size = size;
    this.#width = width;
    this.#times = new Float64Array(size);
    this.#values = new Float64Array(size * width);
  }

  push(time: number, values: readonly number[]): void {
    const slot = this.#count % this.#size;
    this.#times[slot] = time;
    this.#values.set(values, slot * this.#width);
    this.#count += 1;
  }

  /** Rows since that time, oldest first. */
  since(from: number): readonly { readonly time: number; readonly values: Float64Array }[] {
    const kept = Math.min(this.#count, this.#size);
    return Array.from({ length: kept }, (_, i) => (this.#count - kept + i) % this.#size)
      .map((slot) => ({
        time: this.#times[slot] ?? 0,
        values: this.#values.subarray(slot * this.#width, (slot + 1) * this.#width),
      }))
      .filter(({ time }) => time >= from);
  }
}

/** Keeps an hour in steps of ten seconds and a day in minutes, so that the charts need no Prometheus. */
export class MetricHistory {
  readonly #sources: readonly SeriesSource[];
  readonly #metrics: Pick<MetricsExposition, 'collect'>;
  readonly #clock: Clock;
  readonly #fine: Rows;
  readonly #coarse: Rows;
  #minute: number[][] = [];
  #before: Reading | undefined;

  constructor(metrics: Pick<MetricsExposition, 'collect'>, charts: readonly Chart[], clock: Clock) {
    this.#metrics = metrics;
    this.#clock = clock;
    this.#sources = charts.flatMap(({ series }) => series);
    this.#fine = new Rows(FINE_POINTS, this.#sources.length);
    this.#coarse = new Rows(COARSE_POINTS, this.#sources.length);
  }

  async look(): Promise<void> {
    const reading = readMetrics(await this.#metrics.collect(), this.#sources, this.#clock.monotonic());
    const values = this.#sources.map((source) => valueOf(source, this.#before, reading));
    this.#before = reading;
    const time = this.#clock.now();
    this.#fine.push(time, values);
    this.#minute.push(values);
    if (this.#minute.length < COARSE_STEPS) return;
    this.#coarse.push(
      time,
      this.#sources.map((_, i) => mean(this.#minute.map((row) => row[i] ?? Number.NaN))),
    );
    this.#minute = [];
  }

  /** Charts with data: optional ones only while their metrics are registered. */
  shown(charts: readonly Chart[]): readonly Chart[] {
    return charts.filter(({ optional, series }) => !optional || series.some(({ id }) => this.#before?.known.has(id)));
  }

  /** @param period seconds until now */
  last(period: number): HistoryPart {
    const fine = period <= FINE_POINTS * STEP_SECONDS;
    const rows = (fine ? this.#fine : this.#coarse).since(this.#clock.now() - period * 1000);
    return {
      step: fine ? STEP_SECONDS : STEP_SECONDS * COARSE_STEPS,
      times: rows.map(({ time }) => time),
      values: new Map(
        this.#sources.map(({ id }, i) => [id, rows.map(({ values }) => values[i] ?? Number.NaN)] as const),
      ),
    };
  }
}

/** Ignores NaN. */
function mean(values: readonly number[]): number {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length === 0 ? Number.NaN : known.reduce((all, value) => all + value, 0) / known.length;
}

/** Sums by series at one time, from which rates and quantiles are computed. */
interface Reading {
  /** Milliseconds, monotonic. */
  readonly at: number;
  readonly sums: ReadonlyMap<string, readonly number[]>;
  /** Series with a registered metric. */
  readonly known: ReadonlySet<string>;
}

/** Values of each series at one time. */
function readMetrics(families: readonly MetricFamily[], sources: readonly SeriesSource[], at: number): Reading {
  const byName = new Map(families.map((family) => [family.name, family]));
  const known = sources.filter(({ metric }) => byName.has(metric));
  return {
    at,
    sums: new Map(known.map((source) => [source.id, sumsOf(source, byName)])),
    known: new Set(known.map(({ id }) => id)),
  };
}

function sumsOf(source: SeriesSource, byName: ReadonlyMap<string, MetricFamily>): readonly number[] {
  const samples = byName.get(source.metric)?.samples ?? [];
  if (source.kind === 'quantile') return bucketsOf(source, samples).flat();
  const own = sum(samples.filter((sample) => fits(sample, source)));
  return source.of === undefined ? [own] : [own, sum(byName.get(source.of)?.samples ?? [])];
}

const sum = (samples: readonly MetricSample[]): number => samples.reduce((all, { value }) => all + value, 0);

const fits = ({ labels }: MetricSample, { where = {} }: SeriesSource): boolean =>
  Object.entries(where).every(([name, value]) => labels[name] === value);

/** Upper bounds with cumulative counts, over all labels. */
function bucketsOf(source: SeriesSource, samples: readonly MetricSample[]): readonly (readonly [number, number])[] {
  const buckets = new Map<number, number>();
  for (const sample of samples) {
    if (sample.name !== `${source.metric}_bucket` || !fits(sample, source)) continue;
    const le = String(sample.labels['le']);
    const bound = le === '+Inf' ? Infinity : Number(le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + sample.value);
  }
  return [...buckets].toSorted(([a], [b]) => a - b);
}

/** The value of a series between two moments; NaN when there is none. */
function valueOf(source: SeriesSource, before: Reading | undefined, now: Reading): number {
  const sums = now.sums.get(source.id);
  if (sums === undefined) return Number.NaN;
  if (source.kind === 'gauge') return sums[0] ?? Number.NaN;
  if (before === undefined) return Number.NaN;
  const old = before.sums.get(source.id) ?? [];
  const change = (index: number): number => (sums[index] ?? 0) - (old[index] ?? 0);
  if (source.kind === 'quantile') return quantileOf(sums, old, source.quantile ?? 0.5);
  if (source.kind === 'share') return change(1) > 0 ? Math.min(1, change(0) / change(1)) : Number.NaN;
  const seconds = (now.at - before.at) / 1000;
  return seconds > 0 && change(0) >= 0 ? (change(0) / seconds) * (source.factor ?? 1) : Number.NaN;
}

/** Like `histogram_quantile`: linear interpolation between bounds; the last finite bound for higher values. */
function quantileOf(sums: readonly number[], old: readonly number[], quantile: number): number {
  const known = new Map<number, number>();
  for (let i = 0; i < old.length; i += 2) known.set(old[i] ?? 0, old[i + 1] ?? 0);
  const counts: (readonly [bound: number, count: number])[] = [];
  for (let i = 0; i < sums.length; i += 2) {
    const bound = sums[i] ?? 0;
    counts.push([bound, (sums[i + 1] ?? 0) - (known.get(bound) ?? 0)]);
  }
  const total = counts.at(-1)?.[1] ?? 0;
  if (total <= 0) return Number.NaN;
  const wanted = total * quantile;
  let [lower, below] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= wanted) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * ((wanted - below) / Math.max(count - below, Number.MIN_VALUE));
    }
    [lower, below] = [bound, count];
  }
  return lower;
}
