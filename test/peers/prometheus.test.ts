import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { charts } from '../../plugins/monitoring/charts/charts.js';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { projectRoot } from '../support/project.js';
import { Prometheus } from '../support/prometheus.js';
import { adminPassword } from '../support/server-process.js';

const suite = suiteEnding();

describe('a real Prometheus', { skip: skipWithout('prometheus') }, () => {
  let server: InProcessServer;
  let prometheus: Prometheus;

  before(async () => {
    server = await startInProcess(suite);
    await deliver(server.portOf('mx'), lines('Subject: one', '', 'hello'));
    prometheus = await Prometheus.start(suite, {
      address: new URL(server.base).host,
      username: 'admin',
      password: adminPassword,
      rules: join(projectRoot, 'deploy', 'prometheus-alerts.yml'),
    });
    await prometheus.until('a scrape', async () => (await prometheus.query('up == 1')).length === 1);
  });

  test('scrapes without an error and knows what was counted', async () => {
    assert.deepEqual(
      (await prometheus.targets()).map(({ health, lastError }) => [health, lastError]),
      [['up', '']],
    );
    const [accepted] = await prometheus.query('postern_mail_accepted_total{listener="mx"}');
    assert.equal(accepted?.value[1], '1');
    await deliver(server.portOf('mx'), lines('Subject: two', '', 'hello'));
    await prometheus.until(
      'the second message',
      async () => (await prometheus.query('postern_mail_accepted_total{listener="mx"} == 2')).length === 1,
    );
    const [states] = await prometheus.query('sum(postern_health_state)');
    const { components } = (await server.admin.json('/health')) as { components: object };
    assert.equal(Number(states?.value[1]), Object.keys(components).length, 'each component is in one state');
  });

  test('has no sample that it refused, and types and help as they were meant', async () => {
    const [refused] = await prometheus.query(
      'scrape_samples_scraped{job="postern"} - scrape_samples_post_metric_relabeling{job="postern"}',
    );
    assert.equal(refused?.value[1], '0');
    const [quantile] = await prometheus.query(
      'histogram_quantile(0.5, sum by (le) (postern_mail_delivery_seconds_bucket))',
    );
    assert.ok(Number(quantile?.value[1]) > 0);
  });

  test('evaluates every alert rule and every expression of the charts', async () => {
    await prometheus.until('an evaluation', async () =>
      (await prometheus.rules()).every(({ health }) => health !== 'unknown'),
    );
    const rules = await prometheus.rules();
    assert.ok(rules.length >= 9);
    assert.deepEqual(
      rules.filter(({ health }) => health !== 'ok'),
      [],
    );
    for (const { promql } of charts.flatMap(({ series }) => series)) await prometheus.query(promql);
    assert.deepEqual(await prometheus.query('ALERTS{alertstate="firing"}'), []);
  });
});
