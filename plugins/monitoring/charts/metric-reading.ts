import type { MetricFamily, MetricSample } from '../../../core/contracts/server.js';
import type { SeriesSource } from './charts.js';

/** Sums of one moment that rates and quantiles are made of, by series. */
export interface Reading {
  /** Milliseconds, monotonic. */
  readonly at: number;
  readonly sums: ReadonlyMap<string, readonly number[]>;
  /** Series whose metric is registered. */
  readonly known: ReadonlySet<string>;
}

/** What has to be known of each series at one moment. */
export function readMetrics(families: readonly MetricFamily[], sources: readonly SeriesSource[], at: number): Reading {
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

/** Upper bounds with the observations up to each, over all labels. */
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
export function valueOf(source: SeriesSource, before: Reading | undefined, now: Reading): number {
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

/** As `histogram_quantile` does it: straight lines between the bounds, the last finite bound for what lies above. */
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
