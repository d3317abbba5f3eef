import assert from 'node:assert/strict';
import { test } from 'node:test';
import { charts, drawChart } from '../../../plugins/monitoring/charts/charts.js';

test('the upper edge of a chart of durations is a whole number of its unit', () => {
  const chart = charts.find(({ id }) => id === 'queueAge') ?? charts.find(({ unit }) => unit === 'seconds');
  assert.ok(chart !== undefined);
  const topOf = (seconds: number) => {
    const values = new Map(chart.series.map(({ id }) => [id, [seconds]]));
    return drawChart(chart, { step: 10, times: [0], values }, 0, 1000).top;
  };
  assert.deepEqual([0.3, 40, 119, 3500, 50_000, 80_000, 400_000].map(topOf), [
    '500 ms',
    '50 s',
    '2 min',
    '100 min',
    '20 h',
    '24 h',
    '5 d',
  ]);
});
