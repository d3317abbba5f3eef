import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../../support/ending.js';
import { HttpClient } from '../../../support/http-client.js';
import { type InProcessServer, startInProcess } from '../../../support/in-process-server.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { freeListeners, runPostern, ServerProcess } from '../../../support/server-process.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { until, untilTrue } from '../../../support/until.js';
import { fillTables } from '../cluster-fixture.js';

interface ClusterState {
  readonly configuration: { readonly set: number; readonly stopped: { readonly node: string; readonly why: string } };
  readonly nodes: readonly {
    readonly node: string;
    readonly configuration: { readonly set: number | null; readonly state: string };
  }[];
}

describe('nodes with one configuration', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let postgres: Postgres;
  const nodes: InProcessServer[] = [];
  const names = ['mx1', 'mx2', 'mx3'];
  const configOf = (node: string, database: string): string => `{
    smtp: { listeners: ${freeListeners} },
    plugins: {
      config: { sync: { source: 'postgres:', server: '${node}', intervalSeconds: 86400 } },
      cluster: { node: '${node}', sessionSeconds: 5, database: { hosts: ['${postgres.folder}'], name: '${database}', user: 'postgres', tls: 'off' } },
    },
  }`;
  before(async () => {
    postgres = await Postgres.start(ending, { durable: true, fill: fillTables });
    await postgres.database('three');
    await postgres.database('one');
    for (const name of names) nodes.push(await startInProcess(ending, configOf(name, 'three')));
  });

  const node = (index: number): InProcessServer => {
    const found = nodes[index];
    if (found === undefined) throw new Error('there are three');
    return found;
  };
  const stateOf = async (index: number): Promise<ClusterState> =>
    (await node(index).admin.json('/cluster')) as ClusterState;
  const push = async (files: Readonly<Record<string, string>>, status = 201) => {
    const json = { files: Object.entries(files).map(([name, text]) => ({ name, text })) };
    return (await node(0).admin.json('/cluster/configuration', { json }, status)) as { set: number; detail: string };
  };
  const use = (index: number, set: number) => node(index).admin.json('/cluster/configuration/use', { json: { set } });
  const recipientsOf = async ({ admin }: InProcessServer): Promise<unknown> => {
    const { sections } = (await admin.json('/config?q=smtp.limits.recipients')) as {
      sections: readonly { readonly items: readonly { readonly key: string; readonly value: unknown }[] }[];
    };
    return sections.flatMap(({ items }) => items).find(({ key }) => key === 'smtp.limits.recipients')?.value;
  };
  const inForce = (): Promise<readonly unknown[]> => Promise.all(nodes.map(recipientsOf));
  const base = (recipients: unknown): string => `{ smtp: { limits: { recipients: ${JSON.stringify(recipients)} } } }`;

  const allApplied = (set: number): Promise<void> =>
    untilTrue(
      `all have applied set ${set}`,
      async () => {
        const { configuration, nodes: states } = await stateOf(2);
        const why = (configuration.stopped as ClusterState['configuration']['stopped'] | null)?.why;
        // A busy machine slows the event loop down, which is health as well: an operator would try again.
        if (why?.startsWith('Its health fell') === true) await use(0, set);
        else assert.equal(why, undefined);
        return states.every((one) => one.configuration.set === set && one.configuration.state === 'applied');
      },
      120_000,
    );

  test('take it in turn, each with its own file on top, stop at one that refuses, and go back', async () => {
    const { set } = await push({ 'base.json5': base(50), 'mx2.json5': base(52) });
    await use(0, set);
    const moving = await until('a node applies it while the others wait', async () => {
      const { nodes: states } = await stateOf(1);
      return states.some(({ configuration }) => configuration.state === 'checking') ? states : undefined;
    });
    assert.equal(
      moving.filter(({ configuration }) => ['checking', 'applying'].includes(configuration.state)).length,
      1,
    );
    await allApplied(set);
    assert.deepEqual(await inForce(), [50, 52, 50]);
    const { servers } = (await node(2).admin.json('/config/sync/status')) as { servers: readonly unknown[] };
    assert.deepEqual(
      servers,
      names.map((server) => ({ server, version: `set ${set}`, state: 'applied', why: null })),
    );

    const { set: bad } = await push({ 'base.json5': base('many') });
    await use(1, bad);
    const { configuration, nodes: states } = await until('it is stopped', async () => {
      const state = await stateOf(2);
      return (state.configuration.stopped as unknown) === null ? undefined : state;
    });
    assert.match(configuration.stopped.why, /recipients/);
    assert.equal(states.filter((one) => one.configuration.state === 'refused').length, 1);
    assert.deepEqual(await inForce(), [50, 52, 50]);
    assert.match(await node(0).admin.page('/cluster'), new RegExp(`Set ${bad} is stopped`));

    await use(2, set);
    await allApplied(set);
  });

  test('have no secret in a set, and none on its page', async () => {
    const users = (password: string) =>
      `{ http: { accounts: [{ username: 'x', password: ${password}, role: 'read' }] } }`;
    const { detail } = await push({ 'base.json5': users("'hunter2 hunter2'") }, 422);
    assert.match(detail, /base\.json5: http\.accounts\.0\.password/);
    assert.doesNotMatch(detail, /hunter2/);
    assert.match((await push({ 'base.json5': '{ plugins: { cluster: {} } }' }, 422)).detail, /plugins\.cluster/);
    assert.match((await push({ 'base.json5': "{ data: '/elsewhere' }" }, 422)).detail, /data/);
    assert.match((await push({ 'base.json5': '{' }, 422)).detail, /base\.json5:1:\d+: not valid JSON5/);
    const { set } = await push({ 'base.json5': users("{ file: '/etc/postern/x' }") });
    assert.match(await node(1).admin.page(`/cluster/configuration/${set}`), /base\.json5/);
    assert.match(await node(1).admin.page('/cluster/configuration'), /Use set/);
    // As somebody could write it past the check.
    await postgres.psql(
      `insert into postern.config_set (at, files) select at, replace(files, '{ file: ''/etc/postern/x'' }', '''hunter2 hunter2''') from postern.config_set where number = ${set}`,
      'three',
    );
    assert.doesNotMatch(await node(1).admin.page(`/cluster/configuration/${set + 1}`), /hunter2/);
    assert.doesNotMatch(JSON.stringify(await node(1).admin.json(`/cluster/configuration/${set + 1}`)), /hunter2/);
  });

  test('start with the set that was applied last while the database is away; the command pushes a folder', async (t) => {
    const folder = await temporaryFolder(t);
    const central = join(folder, 'central');
    await mkdir(join(central, 'mx9'), { recursive: true });
    await writeFile(join(central, 'base.json5'), base(60));
    await writeFile(join(central, 'mx9', 'own.json5'), base(69));
    const first = await ServerProcess.start(t, { folder, config: configOf('mx9', 'one') });
    const run = async (words: string) => await runPostern(['cluster', 'config', ...words.split(' ')], { cwd: folder });
    assert.match((await run('list')).stdout, /no set yet/);
    assert.match((await run(`push ${central}`)).stdout, /Set 1: base\.json5, mx9\/own\.json5/);
    assert.equal((await run('use 2')).code, 1);
    assert.match((await run('use 1')).stdout, /one after the other/);
    assert.match((await run('show 1')).stdout, /\/\/ mx9\/own\.json5\n.*69/);
    assert.equal((await run('show')).code, 2);
    const recipients = async ({ http }: ServerProcess): Promise<string> =>
      (await HttpClient.admin(http).request('/config?q=smtp.limits.recipients', { accept: 'application/json' })).text;
    await untilTrue('it is in force', async () => (await recipients(first)).includes('"value":69'), 30_000);
    assert.match((await run('list')).stdout, /^1 {2}in use/);
    const { items } = (await HttpClient.admin(first.http).json('/audit')) as { items: readonly { action: string }[] };
    assert.ok(items.some(({ action }) => action === 'push configuration'));
    await first.kill('SIGTERM');
    await postgres.stop('immediate');
    const second = await ServerProcess.start(t, { folder, config: configOf('mx9', 'one') });
    assert.match(await recipients(second), /"value":69/);
    await postgres.start();
  });
});
