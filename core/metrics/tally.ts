import type { Counter } from 'prom-client';

/** So many series at most wait to be added up. */
const mostWaiting = 1000;

/**
 * Lets the children of a counter, `counter.labels(…)`, add to a plain number that goes into its series when somebody looks:
 * to find a series by its labels costs far more than to count.
 */
export function tallyChildren(counter: Counter): void {
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
        if (!(value >= 0 && value < Infinity)) throw new TypeError('A counter counts up, by a number.');
        if (counted === 0) waiting.add(add);
        counted += value;
        if (waiting.size > mostWaiting) settle();
      },
    };
  };
  Object.assign(counter, { labels: tally, collect: settle });
}
