import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import pg from 'pg';
import { clusterPlugin } from '../../../plugins/cluster/index.js';
import { NodeDuties } from '../../../plugins/cluster/shared/node-duties.js';
import { suiteEnding } from '../../support/ending.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { until, untilTrue } from '../../support/until.js';
import { configurationOf, openPluginSite, type PluginSite } from '../plugin-site.js';
import { fillTables } from './cluster-fixture.js';
import { joined, loadMove, openClusterSite, settingsOf } from './cluster-site.js';

interface State {
  readonly fault: string | null;
  readonly differs: readonly string[];
  readonly nodes: readonly Readonly<Record<string, unknown>>[];
  readonly database: Readonly<Record<string, unknown>> | null;
}

const stateOf = async (site: PluginSite): Promise<State> => (await site.json('/cluster')) as unknown as State;

test('the page of a server that is alone says how a cluster is made; nothing of it can be changed', async (t) => {
  const { unconfigured } = clusterPlugin(loadMove);
  assert.ok(unconfigured);
  const site = await openPluginSite(t, unconfigured, { configuration: configurationOf([]) });
  assert.match(await site.page('/cluster'), /This server is alone.*postern cluster init/s);
  assert.equal((await site.json('/cluster'))['configured'], false);
  const answer = await site.get('/cluster/drain', { method: 'POST', body: new URLSearchParams({ node: 'mx1' }) });
  assert.equal(answer.status, 409);
});

describe('the page of a cluster', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  const database = () => ({ hosts: [server.folder], name: 'page', user: 'postgres', tls: 'off' });
  const change = async (site: PluginSite, action: string, node: string, as = 'boss') => {
    const headers = { accept: 'application/json', 'content-type': 'application/json' };
    const init = { method: 'POST', as, headers, body: JSON.stringify({ node }) };
    return (await site.get(`/cluster/${action}`, init)).status;
  };
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
    await server.database('page');
  });

  test('shows nodes and database, marks what differs, drains and forgets', async (t) => {
    const site = await openClusterSite(t, { node: 'mx1', sessionSeconds: 2, database: database() });
    const other = await joined(t, settingsOf(database(), { node: 'mx2' }), '0.0.0-other');
    const { nodes, differs, database: shown } = await stateOf(site);
    assert.deepEqual(
      nodes.map(({ node, own, state, leases, clockIsOff }) => [node, own, state, leases, clockIsOff]),
      [
        ['mx1', true, 'up', 0, false],
        ['mx2', false, 'up', 0, false],
      ],
    );
    assert.deepEqual(differs, ['version']);
    assert.equal(shown?.['host'], server.folder);
    assert.equal(shown?.['synchronous'], false);
    const tables = shown['tables'] as { table: string }[];
    assert.ok(tables.some(({ table }) => table === 'recipient') && !tables.some(({ table }) => table === 'body'));
    assert.equal(shown['presentBodyTable'], 'body_0');
    const { body: metrics } = await site.metrics.exposition.render('prometheus');
    assert.match(metrics, /^postern_cluster_database_up 1$/m);
    assert.match(metrics, /^postern_cluster_session_age_seconds [\d.]+$/m);
    assert.match(metrics, /^postern_cluster_fenced_total 0$/m);
    const page = await site.page('/cluster');
    assert.match(page, /body_0<\/code> <span class="muted">new messages go here</);
    assert.match(page, /different versions/);
    const [telling = '', others = ''] = page.split(/<details[^>]*>\s*<summary[^>]*>\d+ other tables/);
    const rowsOf = (html: string): number => html.split('data-label="Dead rows"').length - 1;
    assert.ok(rowsOf(telling) >= 5 && rowsOf(telling) <= 6, `${rowsOf(telling)}`);
    assert.equal(rowsOf(telling) + rowsOf(others), tables.length);
    assert.match(telling, /body_0</);
    assert.match(page, /data-tone="warn">0\.0\.0-other</);
    assert.match(page, /hx-trigger="every 5s"/);

    assert.equal(await change(site, 'drain', 'mx2', 'operator'), 403);
    assert.equal(await change(site, 'drain', 'mx9'), 404);
    assert.equal(await change(site, 'drain', 'mx2'), 200);
    await untilTrue('the other node drains', () => other.draining);
    assert.match(await site.page('/cluster'), /aria-label="End drain of mx2"/);
    assert.equal(await change(site, 'undrain', 'mx2'), 200);
    await untilTrue('the other node works again', () => !other.draining);

    assert.equal(await change(site, 'forget', 'mx2'), 409);
    await other.leave();
    assert.equal((await stateOf(site)).nodes[1]?.['state'], 'dead');
    assert.deepEqual((await stateOf(site)).differs, []);
    assert.match(await site.page('/cluster'), /aria-label="Forget mx2"/);
    assert.equal(await change(site, 'forget', 'mx2'), 200);
    assert.deepEqual(
      (await stateOf(site)).nodes.map(({ node }) => node),
      ['mx1'],
    );
    assert.deepEqual(
      site.audit.filter(({ status }) => status === 200).map(({ action, selector }) => [action, selector]),
      ['drain node', 'undrain node', 'forget node'].map((action) => [action, { node: 'mx2' }]),
    );
  });

  test('names who holds an old snapshot, standbys and slots', async (t) => {
    const site = await openClusterSite(t, { node: 'mx1', sessionSeconds: 2, database: database() });
    await server.psql("select pg_create_physical_replication_slot('backup', true)");
    t.after(() => server.psql("select pg_drop_replication_slot('backup')"));
    const client = new pg.Client({ connectionString: server.url('page'), application_name: 'report' });
    t.after(() => client.end());
    await client.connect();
    await client.query('begin isolation level repeatable read; select 1');
    const oldest = await until('the snapshot is seen', async () => {
      const { database: shown } = await stateOf(site);
      return (shown?.['oldestSnapshot'] as { holder: string } | null)?.holder;
    });
    assert.match(oldest, /report \(postgres, process \d+\)/);
    const slots = (await stateOf(site)).database?.['slots'] as { name: string; active: boolean }[];
    assert.deepEqual([slots[0]?.name, slots[0]?.active], ['backup', false]);
    assert.match(await site.page('/cluster'), /Replication slots/);
  });

  test('a node that drains gives its duties back and keeps draining over a lost session, but not over a restart', async (t) => {
    const settings = settingsOf(database(), { node: 'mx3' });
    const node = await joined(t, settings);
    const duties = new NodeDuties(node);
    duties.has('x');
    await duties.take();
    assert.equal(duties.has('x'), true);
    await server.psql("update postern.session set draining = true where node = 'mx3'", 'page');
    await untilTrue('it drains', () => node.draining);
    await duties.take();
    assert.equal(duties.has('x'), false);
    assert.equal(await server.psql('select count(*) from postern.duty', 'page'), '0');
    const first = node.session;
    await server.psql("update postern.session set dead = true where node = 'mx3'", 'page');
    await untilTrue('it has joined anew', () => node.session !== undefined && node.session !== first);
    assert.equal(node.draining, true);
    const row = "select draining from postern.session where node = 'mx3' and not dead";
    assert.equal(await server.psql(row, 'page'), 't');
    await node.leave();
    const next = await joined(t, settings);
    assert.equal(next.draining, false);
  });

  test('says that the database is away, and shows it again when it is back', async (t) => {
    const site = await openClusterSite(t, { node: 'mx1', sessionSeconds: 2, database: database() });
    await server.stop('immediate');
    const { fault, nodes } = await until('the fault is known', async () => {
      const state = await stateOf(site);
      return state.fault === null ? undefined : state;
    });
    assert.match(fault ?? '', /ENOENT|ECONNREFUSED|terminat|shutting down/);
    assert.deepEqual(nodes, []);
    assert.match(await site.page('/cluster'), /The database does not answer/);
    assert.equal(await change(site, 'drain', 'mx1'), 503);
    assert.equal(site.health.components()['cluster']?.status, 'degraded');
    await server.start();
    await untilTrue('the node is up again', async () => {
      const { nodes: back } = await stateOf(site);
      return back.some(({ node, state }) => node === 'mx1' && state === 'up');
    });
  });
});
