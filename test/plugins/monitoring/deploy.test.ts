import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { charts } from '../../../plugins/monitoring/charts/charts.js';
import { skipWithout } from '../../support/peers.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const rules = join(projectRoot, 'deploy', 'prometheus-alerts.yml');

interface Dashboard {
  readonly panels: readonly {
    readonly id: number;
    readonly title: string;
    readonly targets: readonly { readonly expr: string; readonly legendFormat: string }[];
  }[];
}

const dashboard = JSON.parse(
  readFileSync(join(projectRoot, 'deploy', 'grafana-dashboard.json'), 'utf8'),
) as unknown as Dashboard;

test('the dashboard shows what the metrics page shows, in the same order', () => {
  assert.deepEqual(
    dashboard.panels.map(({ title, targets }) => [
      title,
      targets.map(({ expr, legendFormat }) => [legendFormat, expr.replaceAll('$__rate_interval', '5m')]),
    ]),
    charts.map(({ title, series }) => [title, series.map(({ label, promql }) => [label, promql])]),
  );
  assert.equal(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length);
});

test('Prometheus accepts the alert rules', { skip: skipWithout('promtool') }, () => {
  const { status, stdout, stderr } = spawnSync('promtool', ['check', 'rules', rules], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  assert.match(stdout, /SUCCESS: 17 rules found/);
});

test('Prometheus accepts every expression of the charts', { skip: skipWithout('promtool') }, async (t) => {
  const expressions = charts.flatMap(({ series }) => series.map(({ promql }) => promql));
  const lines = expressions.map((expr, i) => `      - { record: 'chart:${i}', expr: '${expr.replaceAll("'", "''")}' }`);
  const file = join(await temporaryFolder(t), 'charts.yml');
  await writeFile(file, `groups:\n  - name: charts\n    rules:\n${lines.join('\n')}\n`);
  const { status, stderr } = spawnSync('promtool', ['check', 'rules', file], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});
