import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Metrics } from '../../../core/metrics/metrics.js';
import { nameComplaint, type MetricKind } from '../../../core/metrics/name.js';
import { skipWithout } from '../../support/peers.js';

const own = (maxSeries = 200): Metrics => new Metrics({ process: false, maxSeries });
const textOf = async (metrics: Metrics): Promise<string> => (await metrics.exposition.render('prometheus')).body;

test('counters, gauges and histograms are exposed under the prefix', async () => {
  const metrics = own();
  const scope = metrics.scope('store');
  scope.counter('deliveries_total', 'Deliveries.', ['result']).inc({ result: 'ok' }, 2);
  scope.gauge('queue_entries', 'Entries.', [], (gauge) => gauge.set(7)).set(1);
  scope.histogram('commit_seconds', 'Commits.', [0.1, 1], ['kind']).observe({ kind: 'file' }, 0.5);
  assert.equal(
    await textOf(metrics),
    [
      '# HELP postern_deliveries_total Deliveries.',
      '# TYPE postern_deliveries_total counter',
      'postern_deliveries_total{result="ok"} 2',
      '# HELP postern_queue_entries Entries.',
      '# TYPE postern_queue_entries gauge',
      'postern_queue_entries 7',
      '# HELP postern_commit_seconds Commits.',
      '# TYPE postern_commit_seconds histogram',
      'postern_commit_seconds_bucket{le="0.1",kind="file"} 0',
      'postern_commit_seconds_bucket{le="1",kind="file"} 1',
      'postern_commit_seconds_bucket{le="+Inf",kind="file"} 1',
      'postern_commit_seconds_sum{kind="file"} 0.5',
      'postern_commit_seconds_count{kind="file"} 1',
      '',
    ].join('\n'),
  );
});

test('OpenMetrics names the family of a counter without its ending, ends with EOF, and changes nothing for the next scrape', async () => {
  const metrics = own();
  metrics.scope('a').counter('mails_total', 'Says "hello".').inc(3);
  const { body, contentType } = await metrics.exposition.render('openmetrics');
  assert.equal(
    body,
    '# HELP postern_mails Says \\"hello\\".\n# TYPE postern_mails counter\npostern_mails_total 3\n# EOF\n',
  );
  assert.match(contentType, /^application\/openmetrics-text; version=1\.0\.0/);
  assert.match(await textOf(metrics), /^# TYPE postern_mails_total counter$/m);
});

test('hostile label values are escaped and add no line', async () => {
  const metrics = own();
  const counter = metrics.scope('a').counter('things_total', 'Things.', ['name']);
  for (const name of ['a\nb 1', 'a"} 5', 'a\\', 'a\r\u2028b', 'a\u0000', '<script>', '__proto__', 'x'.repeat(10_000)])
    counter.inc({ name });
  const lines = (await textOf(metrics)).split(/[\n\r\u2028\u0085]/);
  assert.equal(lines.length, 2 + 8 + 1);
  for (const line of lines.slice(2, -1))
    assert.match(line, /^postern_things_total\{name="(?:[^"\\\n]|\\["\\n])*"\} 1$/);
  assert.ok(lines.every((line) => line.length < 300));
});

test('above the cap every new label set is counted as other, by every method', async () => {
  const metrics = own(3);
  const scope = metrics.scope('a');
  const counter = scope.counter('visits_total', 'Visits.', ['who']);
  for (let i = 0; i < 50; i += 1) counter.inc({ who: `w${i}` });
  counter.labels('w0').inc();
  counter.labels({ who: 'w77' }).inc();
  const histogram = scope.histogram('wait_seconds', 'Waits.', [1], ['who']);
  for (let i = 0; i < 50; i += 1) histogram.labels(`w${i}`).observe(2);
  const gauge = scope.gauge('size_bytes', 'Sizes.', ['who']);
  for (let i = 0; i < 50; i += 1) gauge.set({ who: `w${i}` }, i);
  const text = await textOf(metrics);
  assert.match(text, /^postern_visits_total\{who="w0"\} 2$/m);
  assert.match(text, /^postern_visits_total\{who="other"\} 48$/m);
  assert.match(text, /^postern_wait_seconds_count\{who="other"\} 47$/m);
  assert.equal(text.split('\n').filter((line) => line.startsWith('postern_size_bytes{')).length, 4);
});

test('a name belongs to one plugin and one shape; the same plugin gets the same metric', () => {
  const metrics = own();
  const first = metrics.scope('a').counter('x_total', 'X.', ['l']);
  assert.equal(metrics.scope('a').counter('x_total', 'X.', ['l']), first);
  assert.throws(() => metrics.scope('b').counter('x_total', 'X.', ['l']), /already a counter of plugin a/);
  assert.throws(() => metrics.scope('a').counter('x_total', 'X.', ['m']), /with labels \[l\]/);
});

test('a gauge is collected by the newest scope that has it', async () => {
  const metrics = own();
  const old = metrics.scope('store');
  old.gauge('queue_entries', 'Entries.', [], (gauge) => gauge.set(1));
  const successor = metrics.scope('store');
  successor.gauge('queue_entries', 'Entries.', [], (gauge) => gauge.set(2));
  assert.match(await textOf(metrics), /^postern_queue_entries 2$/m);
  successor.undo();
  assert.match(await textOf(metrics), /^postern_queue_entries 1$/m);
});

test('undo removes the metrics of a scope, unless its successor has them', async () => {
  const metrics = own();
  const old = metrics.scope('a');
  old.counter('kept_total', 'Kept.').inc();
  old.counter('gone_total', 'Gone.').inc();
  const successor = metrics.scope('a');
  successor.counter('kept_total', 'Kept.').inc();
  old.undo();
  const text = await textOf(metrics);
  assert.match(text, /^postern_kept_total 2$/m);
  assert.doesNotMatch(text, /gone/);
  successor.undo();
  assert.equal(await textOf(metrics), '');
  metrics.scope('b').counter('kept_total', 'Kept.');
});

test('a gauge whose collect throws does not hide the others', async () => {
  const metrics = own();
  metrics.scope('a').gauge('broken', 'Broken.', [], () => {
    throw new Error('no');
  });
  metrics.scope('a').gauge('well', 'Well.').set(1);
  assert.match(await textOf(metrics), /^postern_well 1$/m);
});

const bad: readonly (readonly [MetricKind, string])[] = [
  ['counter', 'messages'],
  ['gauge', 'open_total'],
  ['gauge', 'wait_ms'],
  ['histogram', 'wait_milliseconds'],
  ['gauge', 'Messages'],
  ['gauge', 'sizeBytes'],
  ['gauge', 'entries_gauge'],
  ['histogram', 'wait_bucket'],
  ['gauge', 'memory_mb'],
  ['gauge', 'a:b'],
  ['gauge', 'a__b'],
];
for (const [kind, name] of bad) {
  test(`the ${kind} "${name}" is refused`, () => {
    assert.throws(() => {
      const scope = own().scope('a');
      if (kind === 'histogram') scope.histogram(name, 'Help.', [1]);
      else scope[kind](name, 'Help.');
    }, /plugin a/);
  });
}

test('good names pass, and labels are named by the rules too', () => {
  assert.equal(nameComplaint('histogram', 'delivery_seconds', 'Help.', ['result']), undefined);
  assert.match(nameComplaint('histogram', 'delivery_seconds', 'Help.', ['le']) ?? '', /"le"/);
  assert.match(nameComplaint('gauge', 'disk_free_bytes', ' ', []) ?? '', /help/);
});

test(
  'promtool has nothing to say about the exposition, metrics of the process included',
  { skip: skipWithout('promtool') },
  async () => {
    const metrics = new Metrics();
    metrics.scope('a').counter('mails_total', 'Mails.').inc();
    metrics.scope('a').histogram('wait_seconds', 'Waits.', [0.1, 1]).observe(0.2);
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: await textOf(metrics),
      encoding: 'utf8',
    });
    assert.equal(`${stdout}${stderr}`, '');
    assert.equal(status, 0);
  },
);

test("increments of a counter's child are in its series at the next collect", async () => {
  const metrics = own();
  const counter = metrics.scope('a').counter('mails_total', 'Mails.', ['kind']);
  const child = counter.labels({ kind: 'new' });
  child.inc();
  child.inc(4);
  counter.inc({ kind: 'new' }, 10);
  assert.match(await textOf(metrics), /^postern_mails_total\{kind="new"\} 15$/m);
  assert.match(await textOf(metrics), /^postern_mails_total\{kind="new"\} 15$/m);
  child.inc(0);
  child.inc(1);
  assert.match(await textOf(metrics), /^postern_mails_total\{kind="new"\} 16$/m);
  for (const wrong of [-1, Number.NaN, Infinity]) assert.throws(() => child.inc(wrong), TypeError);
});

test('children made for each increment are summed, however many there are', async () => {
  const metrics = own(5);
  const counter = metrics.scope('a').counter('mails_total', 'Mails.', ['kind']);
  for (let n = 0; n < 5000; n += 1) counter.labels({ kind: `k${n % 3}` }).inc();
  const text = await textOf(metrics);
  for (const [kind, count] of [
    ['k0', 1667],
    ['k1', 1667],
    ['k2', 1666],
  ] as const)
    assert.ok(text.includes(`postern_mails_total{kind="${kind}"} ${count}\n`), text);
});

test('a gauge whose collect never finishes is left out after a time limit', async (t) => {
  const metrics = own();
  metrics.scope('hanging').gauge('hanging_entries', 'Entries.', [], () => new Promise<void>(() => undefined));
  metrics.scope('well').gauge('well_entries', 'Entries.', [], (gauge) => gauge.set(3));
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const text = textOf(metrics);
  await turn();
  t.mock.timers.tick(5000);
  assert.match(await text, /^postern_well_entries 3$/m);
  assert.doesNotMatch(await text, /hanging/);
});

test('each scrape shows what changed since the last one, series that went and series that came', async () => {
  const metrics = own();
  const scope = metrics.scope('a');
  const hits = scope.counter('hits_total', 'Hits.', ['of']);
  const wait = scope.histogram('wait_seconds', 'Waits.', [1, 0.1 + 1, 10], ['of']);
  let open: Readonly<Record<string, number>> = { a: 1, b: 2 };
  scope.gauge('open', 'Open.', ['of'], (gauge) => {
    gauge.reset();
    for (const [of, value] of Object.entries(open)) gauge.set({ of }, value);
  });
  const samples = async (): Promise<readonly string[]> =>
    (await textOf(metrics)).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  hits.inc({ of: 'x' });
  wait.observe({ of: 'x' }, 1.05);
  const first = await samples();
  assert.deepEqual(first, await samples());
  assert.ok(first.includes('postern_wait_seconds_bucket{le="1.1",of="x"} 1'));
  assert.ok(first.includes('postern_open{of="b"} 2'));
  hits.labels('x').inc(2);
  wait.labels('x').observe(5);
  wait.observe({ of: 'y' }, 0.5);
  open = { b: 2, c: Number.NaN };
  const second = await samples();
  for (const line of [
    'postern_hits_total{of="x"} 3',
    'postern_wait_seconds_bucket{le="1",of="x"} 0',
    'postern_wait_seconds_bucket{le="10",of="x"} 2',
    'postern_wait_seconds_sum{of="x"} 6.05',
    'postern_wait_seconds_bucket{le="1",of="y"} 1',
    'postern_open{of="b"} 2',
    'postern_open{of="c"} NaN',
  ])
    assert.ok(second.includes(line), line);
  assert.ok(!second.some((line) => line.startsWith('postern_open{of="a"}')));
  wait.reset();
  wait.observe({ of: 'x' }, 0.5);
  wait.observe({ of: 'x' }, 0.5);
  assert.ok((await samples()).includes('postern_wait_seconds_bucket{le="1",of="x"} 2'));
});
