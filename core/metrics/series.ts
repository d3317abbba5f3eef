import type { Counter } from 'prom-client';

/** Characters kept of a label value. */
const MAX_VALUE = 120;
/** Label value of all series beyond the limit. */
const OTHER = 'other';

type Labels = Readonly<Record<string, unknown>>;

/**
 * Bounds the series of one metric, whatever label values clients cause: the first `limit` label sets get series of
 * their own, later ones share one.
 */
class SeriesCap {
  readonly #names: readonly string[];
  readonly #limit: number;
  readonly #known = new Set<string>();

  constructor(names: readonly string[], limit: number) {
    this.#names = names;
    this.#limit = limit;
  }

  admit(labels: Labels): Labels {
    const key = this.#names.map((name) => text(labels[name])).join('\u0000');
    if (this.#known.has(key)) return shorten(labels);
    if (this.#known.size < this.#limit) {
      this.#known.add(key);
      return shorten(labels);
    }
    return Object.fromEntries(Object.keys(labels).map((name) => [name, OTHER]));
  }

  forget(): void {
    this.#known.clear();
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));

function shorten(labels: Labels): Labels {
  const tooLong = (value: unknown): boolean => typeof value === 'string' && value.length > MAX_VALUE;
  if (!Object.values(labels).some(tooLong)) return labels;
  return Object.fromEntries(
    Object.entries(labels).map(([name, value]) => [name, tooLong(value) ? String(value).slice(0, MAX_VALUE) : value]),
  );
}

/** Methods of prom-client metrics that take labels; not every kind has all. */
const TAKING_LABELS = ['inc', 'dec', 'set', 'observe', 'zero', 'startTimer', 'setToCurrentTime'];

/** Applies the cap to every labelled call of a metric. They are own properties, so a subclass cannot override them. */
export function capSeries(metric: object, names: readonly string[], limit: number): void {
  if (names.length === 0) return;
  const cap = new SeriesCap(names, limit);
  const admit = (first: unknown): unknown =>
    typeof first === 'object' && first !== null ? cap.admit({ ...first }) : first;
  for (const method of TAKING_LABELS) {
    replace(metric, method, (original, [first, ...rest]) => original(admit(first), ...rest));
  }
  replace(metric, 'labels', (original, values) =>
    original(
      typeof values[0] === 'object'
        ? admit(values[0])
        : cap.admit(Object.fromEntries(names.map((name, i) => [name, values[i]]))),
    ),
  );
  replace(metric, 'reset', (original) => {
    cap.forget();
    return original();
  });
}

type Call = (...values: readonly unknown[]) => unknown;

function replace(
  metric: object,
  method: string,
  around: (original: Call, values: readonly unknown[]) => unknown,
): void {
  const original: unknown = Reflect.get(metric, method);
  if (typeof original !== 'function') return;
  const call: Call = (...values) => Reflect.apply(original, metric, values) as unknown;
  Reflect.set(metric, method, (...values: readonly unknown[]) => around(call, values));
}

/** Series with pending increments. */
const maxPending = 1000;

/**
 * Makes `counter.labels(…)` add to a plain number that is flushed on collect: finding a series by its labels costs far
 * more than adding.
 */
export function batchIncrements(counter: Counter): void {
  const waiting = new Set<() => void>();
  const settle = (): void => {
    for (const add of waiting) add();
    waiting.clear();
  };
  const labels = counter.labels.bind(counter) as (...values: readonly unknown[]) => Counter.Internal;
  const tally = (...values: readonly unknown[]): Counter.Internal => {
    const child = labels(...values);
    let counted = 0;
    const add = (): void => {
      child.inc(counted);
      counted = 0;
    };
    return {
      inc: (value = 1) => {
        if (!(value >= 0 && value < Infinity)) throw new TypeError('A counter only counts up, by a finite number.');
        if (counted === 0) waiting.add(add);
        counted += value;
        if (waiting.size > maxPending) settle();
      },
    };
  };
  Object.assign(counter, { labels: tally, collect: settle });
}
