import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drain, startSink } from '../../chaos/chaos.js';
import type { Ending } from '../../support/ending.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { runPostern } from '../../support/server-process.js';
import { untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';
import { WholeNodes } from '../../chaos/whole-nodes.js';

const longMs = 60_000;
const names = ['mx1', 'mx2'];
const database = 'mail';

describe('a standby takes the place of the database', { skip: skipWithout('postgres') }, () => {
  async function pair(t: Ending) {
    const primary = await Postgres.start(t, { durable: true, fill: fillTables });
    await primary.database(database);
    const standby = await primary.standby(t);
    const sink = await startSink(t, './mail-sink.js', 5);
    return { primary, standby, sink, hosts: [primary.folder, standby.folder] };
  }
  const open = async (server: Postgres): Promise<number> =>
    Number(await server.psql('select count(*) from postern.entry where finished_at is null', database));

  test('that commits have waited for, while mail comes: nothing is lost, and the nodes go on', async (t) => {
    const { primary, standby, sink, hosts } = await pair(t);
    await primary.alter(`set synchronous_standby_names = '*'`);
    const mode = "select count(*) from pg_stat_replication where sync_state = 'sync'";
    await untilTrue('commits wait for it', async () => (await primary.psql(mode)) === '1', longMs);
    const nodes = await WholeNodes.start(t, { names, hosts, database, sinkPort: sink.port });
    const count = 600;
    const sending = nodes.send(count, 6000);
    await untilTrue('mail comes', () => nodes.sent.accepted.size > count / 4, longMs);
    await primary.kill();
    assert.ok(nodes.sent.accepted.size < count);
    await standby.promote();
    await sending;
    await drain(() => open(standby));
    assert.equal(await open(standby), 0);
    const arrived = new Set((await sink.end()).flatMap((columns) => (columns[4] ?? '').split(' ')));
    assert.deepEqual(
      nodes.missing(arrived).filter((address) => !address.endsWith('@gone.example')),
      [],
    );
    assert.equal(nodes.sent.accepted.size, count);
    for (const name of names) assert.doesNotMatch(await nodes.log(name), /has forgotten/);
  });

  test('that lacks commits: doctor has warned, every node raises the alarm, and goes on in a new session', async (t) => {
    const { primary, standby, sink, hosts } = await pair(t);
    const nodes = await WholeNodes.start(t, { names, hosts, database, sinkPort: sink.port });
    const { stdout } = await runPostern(['doctor'], { cwd: nodes.folderOf('mx1') });
    assert.match(stdout, /A commit waits for no standby/);
    const beats = 'select node, beat from postern.session order by node';
    const beatsOf = async (server: Postgres): Promise<readonly number[]> =>
      (await server.psql(beats, database)).split('\n').map((row) => Number(row.split('|')[1] ?? 0));
    await untilTrue(
      'the standby knows the nodes',
      async () => (await beatsOf(standby)).filter((n) => n > 0).length === 2,
    );
    await standby.alter(`set primary_conninfo = ''`);
    const follows = 'select count(*) from pg_stat_replication';
    await untilTrue('the standby follows no more', async () => (await primary.psql(follows)) === '0', longMs);
    const last = await beatsOf(standby);
    const isAhead = async (): Promise<boolean> =>
      (await beatsOf(primary)).every((beat, nth) => beat > (last[nth] ?? 0) + 2);
    await untilTrue('the nodes beat', isAhead, longMs);
    await primary.kill();
    await standby.promote();
    for (const name of names) {
      await untilTrue(
        `${name} raises the alarm`,
        async () => /has forgotten commits/.test((await nodes.health(name))?.why ?? ''),
        longMs,
      );
      assert.match(await nodes.log(name), /the database has forgotten commits/);
      assert.equal(
        await nodes.handIn(name, `after@${name}.example`, `Message-ID: <${name}@after.example>\r\n\r\nx\r\n`),
        250,
      );
    }
    await drain(() => open(standby));
    const ids = (await sink.end()).map(([id]) => id);
    assert.deepEqual(new Set(ids), new Set(names.map((name) => `${name}@after.example`)));
  });
});
