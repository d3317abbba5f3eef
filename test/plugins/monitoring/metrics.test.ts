import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { monitoring } from '../../../plugins/monitoring/index.js';
import { skipWithout } from '../../support/peers.js';
import { configurationOf, openPluginSite, sessionFrom, transactionIn, type PluginSite } from '../plugin-site.js';

const configuration = configurationOf([]);

function traffic({ pipeline }: PluginSite): void {
  const chain = pipeline.snapshot();
  const session = sessionFrom('192.0.2.1');
  const transaction = transactionIn(session, 'anna@example.org', 'bert@example.org');
  chain.emit('accepted', { transaction, recipients: [], size: 3000, ms: 12 });
  for (const recipient of transaction.recipients)
    chain.emit('delivered', { transaction, recipient, target: 'mailbox' });
  chain.emit('rejected', { session, stage: 'rcptTo', code: 550, status: '5.1.1', text: 'No such "user"\nhere' });
  chain.emit('closed', { session, ms: 40, messages: 1 });
}

const scrape = async (site: PluginSite, accept?: string): Promise<string> =>
  (await site.get('/metrics/prometheus', accept === undefined ? {} : { headers: { accept } })).text();

test('what the watchers are told is counted', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  traffic(site);
  const lines = (await scrape(site)).split('\n');
  for (const line of [
    'postern_mail_accepted_total{listener="mx"} 1',
    'postern_mail_recipients_total{listener="mx"} 2',
    'postern_mail_accepted_bytes_total{listener="mx"} 3000',
    'postern_mail_delivery_seconds_sum 0.012',
    'postern_mail_rejected_total{stage="rcptTo",class="5xx",status="5.1.1"} 1',
    'postern_mail_deliveries_total{target="mailbox",result="delivered"} 2',
    'postern_mail_session_seconds_count 1',
    'postern_health_state{component="disk",state="up"} 1',
  ])
    assert.ok(lines.includes(line), line);
  assert.ok(lines.some((line) => /^postern_disk_free_bytes \d+$/.test(line)));
});

test('a scraper gets the format that it asks for', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const asked = async (accept: string): Promise<string | null> =>
    (await site.get('/metrics/prometheus', { headers: { accept } })).headers.get('content-type');
  const prometheus =
    'application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2';
  assert.match((await asked(prometheus)) ?? '', /^application\/openmetrics-text; version=1\.0\.0/);
  assert.match((await asked('*/*')) ?? '', /^text\/plain; version=0\.0\.4/);
  assert.match((await asked('text/html,*/*;q=0.8')) ?? '', /^text\/plain; version=0\.0\.4/);
  assert.equal((await site.get('/metrics/prometheus', { as: null })).status, 401);
});

test('every line of the exposition is a comment or a sample, and OpenMetrics ends with EOF', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  traffic(site);
  const sample =
    /^[a-z][a-z0-9_]*(?:\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\})? (?:NaN|[+-]Inf|-?[\d.e+-]+)$/;
  for (const format of ['text/plain', 'application/openmetrics-text']) {
    const lines = (await scrape(site, format)).split('\n');
    assert.equal(lines.pop(), '');
    if (format !== 'text/plain') assert.equal(lines.pop(), '# EOF');
    for (const line of lines) assert.ok(/^# (?:HELP|TYPE) [a-z]/.test(line) || sample.test(line), line);
  }
});

test('promtool has nothing to say about what the plugin exposes', { skip: skipWithout('promtool') }, async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  traffic(site);
  const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
    input: await scrape(site),
    encoding: 'utf8',
  });
  assert.equal(`${stdout}${stderr}`, '');
  assert.equal(status, 0);
});
