import type { MetricsExposition } from '../../../core/contracts/server.js';
import type { Clock } from '../../../core/clock.js';
import type { Chart, SeriesSource } from './charts.js';
import { readMetrics, valueOf, type Reading } from './metric-reading.js';

/** Seconds between two looks. */
export const STEP_SECONDS = 10;
const FINE_POINTS = 360;
const COARSE_STEPS = 6;
const COARSE_POINTS = 1440;

/** The values of all series over a period, oldest first. */
export interface HistoryPart {
  /** Seconds between two points. */
  readonly step: number;
  /** Milliseconds since 1970. */
  readonly times: readonly number[];
  readonly values: ReadonlyMap<string, readonly number[]>;
}

/** The last values of a fixed number of series, in memory that was taken at the start. */
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

  /** Rows since then, oldest first. */
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

/** Remembers an hour in steps of ten seconds and a day in minutes, so that the charts need no Prometheus. */
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

  /** Charts that can have values: the optional ones only while somebody counts what they show. */
  shown(charts: readonly Chart[]): readonly Chart[] {
    return charts.filter(({ optional, series }) => !optional || series.some(({ id }) => this.#before?.known.has(id)));
  }

  /** @param period seconds up to now */
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

/** Of those that are numbers. */
function mean(values: readonly number[]): number {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length === 0 ? Number.NaN : known.reduce((all, value) => all + value, 0) / known.length;
}
