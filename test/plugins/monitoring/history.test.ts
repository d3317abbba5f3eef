import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MetricFamily } from '../../../core/contracts/server.js';
import { formatValue } from '../../../core/text/format.js';
import { type Chart, charts, drawChart } from '../../../plugins/monitoring/charts/charts.js';
import { graphiteLines } from '../../../plugins/monitoring/graphite.js';
import { MetricHistory } from '../../../plugins/monitoring/charts/history.js';
import { monitoring } from '../../../plugins/monitoring/index.js';
import { configurationOf, noon, openPluginSite, sessionFrom, transactionIn } from '../plugin-site.js';

const configuration = configurationOf([]);
const family = (name: string, value: number, labels = {}): MetricFamily => ({
  name,
  samples: [{ name, labels, value }],
});
const histogram = (name: string, counts: Readonly<Record<string, number>>): MetricFamily => ({
  name,
  samples: Object.entries(counts).map(([le, value]) => ({ name: `${name}_bucket`, labels: { le }, value })),
});

const watched: readonly Chart[] = [
  {
    id: 'a',
    title: 'A',
    unit: 'rate',
    series: [
      { id: 'rate', label: 'rate', kind: 'rate', metric: 'done_total', where: { ok: 'yes' }, promql: '' },
      { id: 'gauge', label: 'gauge', kind: 'gauge', metric: 'open', promql: '' },
      { id: 'median', label: 'median', kind: 'quantile', quantile: 0.5, metric: 'took_seconds', promql: '' },
      { id: 'share', label: 'share', kind: 'share', metric: 'some_total', of: 'all_total', promql: '' },
    ],
  },
];

test('rates, gauges, quantiles and shares are what happened between two looks', async () => {
  let now = 0;
  let step = 0;
  const collect = (): Promise<readonly MetricFamily[]> =>
    Promise.resolve([
      {
        name: 'done_total',
        samples: [
          { name: 'done_total', labels: { ok: 'yes', by: 'a' }, value: 100 + step * 20 },
          { name: 'done_total', labels: { ok: 'no', by: 'a' }, value: 5000 * step },
        ],
      },
      family('open', 7 + step),
      histogram('took_seconds', { '0.1': 50, '0.2': 50 + step * 10, '+Inf': 50 + step * 10 }),
      family('some_total', step),
      family('all_total', step * 4),
    ]);
  const history = new MetricHistory({ collect }, watched, { now: () => now, monotonic: () => now });
  await history.look();
  now = 10_000;
  step = 1;
  await history.look();
  now = 20_000;
  await history.look();
  const { step: seconds, times, values } = history.last(900);
  assert.deepEqual([seconds, times], [10, [0, 10_000, 20_000]]);
  assert.deepEqual(values.get('rate'), [NaN, 2, 0]);
  assert.deepEqual(values.get('gauge'), [7, 8, 8]);
  assert.deepEqual(values.get('share'), [NaN, 0.25, NaN]);
  const [, median = 0, idle = 0] = values.get('median') ?? [];
  assert.ok(Math.abs(median - 0.15) < 1e-9, `${median}`);
  assert.ok(Number.isNaN(idle));
});

test('an hour is kept in steps of ten seconds, a day in minutes, and no more', async () => {
  let now = 0;
  const history = new MetricHistory({ collect: () => Promise.resolve([family('open', now)]) }, watched, {
    now: () => now,
    monotonic: () => now,
  });
  for (let looks = 0; looks < 9000; looks += 1) {
    now += 10_000;
    await history.look();
  }
  assert.equal(history.last(3600).times.length, 360);
  const day = history.last(86_400);
  assert.deepEqual([day.step, day.times.length], [60, 1440]);
  assert.equal(history.last(900).times.at(-1), now);
});

test('a chart is drawn from left to right, breaks where values are missing, and has a text alternative', () => {
  const chart: Chart = { ...(watched[0] as Chart), series: (watched[0] as Chart).series.slice(0, 1) };
  const times = [0, 10_000, 20_000, 30_000];
  const drawn = drawChart(chart, { step: 10, times, values: new Map([['rate', [0, 1, NaN, 1]]]) }, 0, 30_000);
  assert.equal(drawn.series[0]?.path, 'M0.0 118.0h1L200.0 2.0M600.0 2.0h1');
  assert.equal(drawn.top, '1/s');
  assert.equal(drawn.summary, 'rate 1/s');
  assert.deepEqual(
    drawn.rows.map(({ values }) => values[0]),
    ['1/s', '–', '1/s', '0/s'],
  );
  assert.deepEqual(
    [formatValue('bytes', 3_400_000), formatValue('seconds', 0.0123), formatValue('share', 0.5)],
    ['3.2 MB', '12.3 ms', '50 %'],
  );
});

test('Graphite gets dots, tags, seconds and only numbers, whatever a label says', () => {
  const lines = graphiteLines(
    [
      family('postern_mail_accepted_total', 3, { listener: 'mx' }),
      family('nodejs_heap_size_used_bytes', Number.NaN),
      family('postern_http_requests_total', Infinity),
      family('process_open_fds', 12, { a: '~x;y z\n9 9 9', b: '' }),
    ],
    { prefix: 'site.postern', names: 'tagged' },
    1_700_000_000_900,
  );
  assert.equal(
    lines,
    'site.postern.mail.accepted.total;listener=mx 3 1700000000\n' +
      'site.postern.process.open.fds;a=_x_y_z_9_9_9 12 1700000000\n',
  );
});

test('Graphite without tags gets each label as two parts of the path', () => {
  const lines = graphiteLines(
    [
      family('postern_mail_accepted_total', 3, { listener: 'mx' }),
      family('postern_smtp_seconds', 4, { le: '0.5', tls: '' }),
      family('process_open_fds', 12, { a: '~x;y z\n.9' }),
    ],
    { prefix: '', names: 'flat' },
    1_700_000_000_900,
  );
  assert.equal(
    lines,
    'mail.accepted.total.listener.mx 3 1700000000\n' +
      'smtp.seconds.le.0_5 4 1700000000\n' +
      'process.open.fds.a._x_y_z__9 12 1700000000\n',
  );
});

test('each series of the charts has a name of its own and its PromQL', () => {
  const ids = charts.flatMap(({ series }) => series.map(({ id }) => id));
  assert.equal(new Set(ids).size, ids.length);
  for (const { series } of charts)
    for (const { promql } of series) assert.match(promql, /^(?:sum|histogram_quantile)\(/);
});

test('charts of a queue appear once it is counted', async () => {
  let families: readonly MetricFamily[] = [];
  let now = 0;
  const clock = { now: () => now, monotonic: () => now };
  const history = new MetricHistory({ collect: () => Promise.resolve(families) }, charts, clock);
  await history.look();
  assert.ok(history.shown(charts).every(({ optional }) => !optional));
  assert.ok(Number.isNaN(history.last(900).values.get('queueAge')?.[0]));
  families = [
    family('postern_queue_oldest_age_seconds', 7200),
    family('postern_outbound_results_total', 3, { result: 'delivered' }),
  ];
  now = 10_000;
  await history.look();
  families = [...families.slice(0, 1), family('postern_outbound_results_total', 4, { result: 'delivered' })];
  now = 20_000;
  await history.look();
  const shown = history.shown(charts).filter(({ optional }) => optional);
  assert.deepEqual(
    shown.map(({ id }) => id),
    ['queueAge', 'outbound'],
  );
  const { values } = history.last(900);
  assert.deepEqual([values.get('queueAge')?.at(-1), values.get('outbound_delivered')?.at(-1)], [7200, 6]);
  assert.deepEqual([formatValue('seconds', 7200), formatValue('perMinute', 6)], ['2 h', '6/min']);
});

test('the metrics page works without JavaScript; scripts and scrapers get what they ask for', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  site.pipeline.snapshot().emit('accepted', {
    transaction: transactionIn(sessionFrom('192.0.2.1'), 'anna@example.org'),
    size: 10,
    ms: 5,
  });
  const page = await site.page('/metrics?period=6h');
  for (const { title, optional } of charts) assert.equal(page.includes(`>${title}</h2>`), !optional, title);
  assert.match(page, /<a href="\/metrics\?period=6h" aria-current="page">/);
  assert.match(page, /histogram_quantile\(0\.95/);
  assert.match(page, /<svg viewBox="0 0 600 120"/);
  const model = await site.json('/metrics?period=15m');
  assert.deepEqual(Object.keys(model), ['period', 'step', 'times', 'charts']);
  assert.deepEqual(await site.json('/metrics/history?period=15m'), model);
  assert.deepEqual(model['times'], [new Date(noon).toISOString()]);
  const scraped = await site.get('/metrics', {
    headers: { accept: 'application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2' },
  });
  assert.match(await scraped.text(), /^postern_mail_accepted_total\{listener="mx"\} 1$/m);
  const wildcard = await site.get('/metrics');
  assert.match(wildcard.headers.get('content-type') ?? '', /^text\/html/);
  assert.equal((await site.get('/metrics?period=1y')).status, 400);
});

test('/metrics/graphite is one line for each number, with the prefix that was chosen', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration, options: { graphite: { prefix: 'mx1' } } });
  const lines = (await (await site.get('/metrics/graphite')).text()).trimEnd().split('\n');
  for (const line of lines) assert.match(line, /^mx1\.[a-z0-9.]+(?:;[a-z_]+=[!-:<-~]+)* -?[\d.e+-]+ 1795262400$/);
  assert.ok(lines.includes('mx1.health.state;component=disk;state=up 1 1795262400'));
  assert.match(await (await site.get('/metrics/graphite?prefix=a.b')).text(), /^a\.b\./);
  assert.equal((await site.get('/metrics/graphite?prefix=a%0Ab')).status, 400);
  const flat = (await (await site.get('/metrics/graphite?names=flat')).text()).trimEnd().split('\n');
  for (const line of flat) assert.match(line, /^mx1(?:\.[\w-]+)+ -?[\d.e+-]+ 1795262400$/);
  assert.ok(flat.includes('mx1.health.state.component.disk.state.up 1 1795262400'));
  assert.equal(new Set(flat).size, flat.length);
  const other = { configuration, options: { graphite: { names: 'flat' } } };
  assert.doesNotMatch(await (await (await openPluginSite(t, monitoring, other)).get('/metrics/graphite')).text(), /;/);
});
