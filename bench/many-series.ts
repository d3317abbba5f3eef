import { definePlugin, z } from '../core/plugin.js';

/** Registers as many series as a large site has; they change with every scrape. */
export const manySeries = definePlugin({
  name: 'bench-series',
  options: z.strictObject({ series: z.int().min(1).describe('How many.') }),
  setup({ metrics }, { options }) {
    const each = 100;
    for (let metric = 0; metric < options.series / each; metric += 1) {
      metrics.gauge(`bench_values_${metric}`, 'Values of a benchmark.', ['place', 'kind'], (gauge) => {
        for (let place = 0; place < each; place += 1) {
          gauge.set({ place: `place-${place}`, kind: 'bench' }, Math.sqrt(place + metric));
        }
      });
    }
  },
});
