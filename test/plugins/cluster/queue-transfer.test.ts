import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { z } from 'zod';
import { systemClock } from '../../../core/clock.js';
import { openSpool } from '../../../core/spool/file-spool.js';
import { openRelayQueue } from '../../../plugins/client-queue/queue/open-relay-queue.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { newEntry } from '../../kit/relay-queue/entries.js';
import { suiteEnding } from '../../support/ending.js';
import { HttpClient } from '../../support/http-client.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { freeListeners, runPostern, ServerProcess } from '../../support/server-process.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { until } from '../../support/until.js';
import { projectRoot } from '../../support/project.js';
import { emptyTables, fillTables, nodeOf } from './cluster-fixture.js';

const cli = join(projectRoot, 'dist', 'core', 'postern.cjs');

const Counts = z.object({
  dryRun: z.boolean(),
  entries: z.number(),
  moved: z.number(),
  there: z.number(),
  left: z.array(z.unknown()),
});

describe('postern cluster import-queue and export-queue', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables, durable: true });
  });
  const clusterOf = (node: string) => ({
    node,
    database: { hosts: [`${server.folder}:5432`], name: 'template', user: 'postgres', tls: 'off' },
    sessionSeconds: 2,
  });
  /** Nothing answers where mail goes. */
  const configOf = (cluster?: object) => `{
    plugins: ${JSON.stringify({
      'client-queue': { routes: { out: { mx: ['127.0.0.1'], port: 1, tls: 'never', domains: ['b.example'] } } },
      ...(cluster !== undefined && { cluster }),
    })},
    smtp: { listeners: ${freeListeners} },
  }`;
  const run = (folder: string, words: string) =>
    runPostern(['cluster', ...words.split(' '), '--config', 'cluster.json5'], { cwd: folder });
  const counts = async (folder: string, words: string) => {
    const { code, stdout, stderr } = await run(folder, `${words} --json`);
    assert.equal(code, 0, stderr);
    return Counts.parse(JSON.parse(stdout));
  };

  test('a server goes into the cluster with its queue, and out of it', async (t) => {
    await server.psql(emptyTables, 'template');
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'cluster.json5'), configOf(clusterOf('mx1')));
    const config = configOf();
    const alone = await ServerProcess.start(t, { folder, config });
    const stateOf = async ({ http }: ServerProcess, uid: string): Promise<string> =>
      z.object({ state: z.string() }).parse(await HttpClient.admin(http).json(`/client/queue/${uid}`)).state;
    const admin = HttpClient.admin(alone.http);
    const put = async (text: string): Promise<string> => {
      const envelopes = [{ mail: 'ann@a.example', rcpt: ['bob@b.example'], text }];
      return z.object({ uid: z.string() }).parse(await admin.json('/client/queue', { json: { envelopes } }, 202)).uid;
    };
    const uids = await Promise.all(['one', 'two', 'three'].map(put));
    await admin.json('/client/queue/hold', { json: { uids, reason: 'For the move' } });
    const refused = await run(folder, 'import-queue');
    assert.deepEqual([refused.code, /Stop it, and repeat this/.test(refused.stderr)], [1, true], refused.stderr);

    // A moment after its acceptance a message is only in the log of the spool.
    await put('four');
    await alone.kill('SIGKILL');
    const killed = await run(folder, 'import-queue');
    assert.deepEqual([killed.code, /Start it once without plugins.cluster/.test(killed.stderr)], [1, true]);
    await (await ServerProcess.start(t, { folder, config })).kill('SIGTERM');
    const dry = await counts(folder, 'import-queue --dry-run');
    assert.equal(existsSync(join(folder, 'data', 'queue-outage')), false);
    assert.deepEqual(dry, { dryRun: true, entries: 4, moved: 4, there: 0, left: [] });
    assert.equal((await counts(folder, 'import-queue')).moved, 4);
    assert.equal((await counts(folder, 'import-queue')).entries, 0);

    const node = await ServerProcess.start(t, { folder, config: configOf(clusterOf('mx1')) });
    for (const uid of uids) assert.equal(await stateOf(node, uid), 'held');
    assert.match((await run(folder, 'export-queue')).stderr, /Stop it, and repeat this/);
    await node.kill('SIGTERM');
    assert.match((await run(folder, 'export-queue')).stdout, /^4 entries went from the database into files\.$/m);
    const again = await ServerProcess.start(t, { folder, config });
    for (const uid of uids) assert.equal(await stateOf(again, uid), 'held');
  });

  test('runs that are killed, and the last one, bring each entry once', async (t) => {
    await server.psql(emptyTables, 'template');
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'cluster.json5'), configOf(clusterOf('mx1')));
    const data = join(folder, 'data');
    await mkdir(data, { mode: 0o700 });
    const uids = await fillQueue(data, 1500);
    const inDatabase = async () => Number(await server.psql('select count(*) from postern.entry', 'template'));
    const inFiles = async () => (await counts(folder, 'import-queue --dry-run')).entries;
    for (const direction of ['import', 'export'] as const) {
      for (let kills = 0; kills < 2; kills += 1) {
        const before = await inDatabase();
        const child = spawn(process.execPath, [cli, 'cluster', `${direction}-queue`, '--config', 'cluster.json5'], {
          cwd: folder,
          stdio: 'ignore',
        });
        const ended = once(child, 'exit');
        await until('some have gone', async () => ((await inDatabase()) === before ? undefined : true), 120_000);
        child.kill('SIGKILL');
        await ended;
        assert.ok((await inDatabase()) + (await inFiles()) >= uids.length, 'nothing is lost');
      }
      const isImport = direction === 'import';
      assert.equal((await run(folder, `${direction}-queue`)).code, 0);
      assert.deepEqual([await inDatabase(), await inFiles()], isImport ? [uids.length, 0] : [0, uids.length]);
    }
  });

  test('an export waits for a node that was killed, and refuses while one may send', async (t) => {
    await server.psql(emptyTables, 'template');
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'cluster.json5'), configOf(clusterOf('mx1')));
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    const other = nodeOf(server, { node: 'mx2' });
    await other.join();
    t.after(() => other.leave());
    const refused = await run(folder, 'export-queue');
    assert.match(refused.stderr, /May still send what is to be exported: mx2\./);
    await server.psql("update postern.session set draining = true where node = 'mx2'", 'template');
    assert.equal((await run(folder, 'export-queue')).code, 0);
    await server.psql(
      `insert into postern.session (key, node, instance, report)
       values ('mx3:1', 'mx3', 'x', jsonb_build_object('beatAt', extract(epoch from clock_timestamp()) * 1000 - 5000))`,
      'template',
    );
    assert.equal((await run(folder, 'export-queue')).code, 0);
  });
});

async function fillQueue(data: string, count: number): Promise<readonly string[]> {
  const { log } = rememberingLog();
  const spool = await openSpool(join(data, 'spool'), { log, reserveBytes: 0 });
  const queue = await openRelayQueue({
    folder: join(data, 'queue'),
    clock: systemClock,
    log,
    keepFinishedMs: 1e9,
    maxEntries: 1e6,
  });
  const uids = await Promise.all(
    Array.from({ length: count }, async (_, number) => {
      const writer = await spool.create(Buffer.from('Return-Path: <a@b.example>\r\n'), Buffer.from('Received: x\r\n'));
      await writer.write(Buffer.from(`Subject: ${number}\r\n\r\nA line.\r\n`));
      const message = await writer.finish();
      const entry = newEntry(systemClock.now(), { nextAttempt: systemClock.now() + 9_000_000 });
      const prepared = await queue.prepare(entry, message);
      await prepared.commit();
      prepared.release();
      await message.release();
      return entry.uid;
    }),
  );
  await queue.close();
  await spool.close();
  return uids;
}
