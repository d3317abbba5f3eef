import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { buffer } from 'node:stream/consumers';
import { before, describe, test } from 'node:test';
import pg from 'pg';
import { systemClock } from '../../../../core/clock.js';
import { claiming, type EntryWishes, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { memoryMessage, type TestContext } from '../../../kit/relay-queue/harness.js';
import { atEnd, type Ending, suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { untilTrue } from '../../../support/until.js';
import { emptyTables, fillTables } from '../../cluster/cluster-fixture.js';
import { isWhole, load, openHurried, type Said } from './ring-load.js';

describe('the tables of bodies', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const suite: Ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(suite, { fill: fillTables });
  });
  const ask = (text: string): Promise<string> => server.psql(text, 'template');
  const afresh = `${emptyTables};
    update postern.body_table set opened_at = null, closed_at = null;
    update postern.body_table set opened_at = now() where number = 0`;

  async function open(t: TestContext, node = 'mx1') {
    if (node === 'mx1') await ask(afresh);
    const { folder, port } = server;
    const opened = await openHurried({ folder, port, node });
    const { queue, close, ring } = opened;
    t.after(close);
    const prepare = (wishes: EntryWishes, body?: string) =>
      queue.prepare(newEntry(systemClock.now(), wishes), memoryMessage(body));
    const accept = async (wishes: EntryWishes, body?: string): Promise<void> => {
      const prepared = await prepare(wishes, body);
      await prepared.commit();
      prepared.release();
    };
    const deliverAll = async (): Promise<void> => {
      for (const lease of await queue.claim(claiming(systemClock.now()))) {
        await queue.settle(lease, settlement(lease, 'delivered', { at: systemClock.now() }));
      }
    };
    /** Until the tables that there were are all in use, and the first is the next to go. */
    const fillRing = async (): Promise<void> => {
      for (let nth = 1; nth < 8; nth += 1) {
        await ring.turn();
        await accept({ uid: `filling${nth}` });
      }
    };
    return { ...opened, prepare, accept, deliverAll, fillRing };
  }

  const tableOf = (uid: string) => ask(`select body_table from postern.entry where uid = '${uid}'`);
  const bodies = (table: number) => ask(`select count(*) from postern.body where table_number = ${table}`);
  const textOf = async (stream: NodeJS.ReadableStream): Promise<string> => (await buffer(stream)).toString();
  const large = `Subject: large\r\n\r\n${'0123456789abcde\n'.repeat(60_000)}`;

  test('new bodies go to the next table, and one that no entry names is emptied', async (t) => {
    const { accept, ring, deliverAll } = await open(t);
    await accept({ uid: 'first' });
    await ring.turn();
    await accept({ uid: 'second' });
    assert.deepEqual([await tableOf('first'), await tableOf('second')], ['0', '1']);
    await ring.turn();
    assert.equal(await bodies(0), '1', 'an entry names it');
    await deliverAll();
    await ring.turn();
    assert.deepEqual([await bodies(0), await bodies(1)], ['0', '0']);
    const states = await ask(
      "select string_agg((opened_at is null)::text, ' ' order by number) from postern.body_table",
    );
    assert.equal(states.split(' ').filter((isEmpty) => isEmpty === 'false').length, 1);
  });

  test('an empty table stays open, however old', async (t) => {
    const { ring } = await open(t);
    await ring.turn();
    assert.equal(await ask('select number from postern.body_table where opened_at is not null'), '0');
  });

  test('what is still wanted when its table is the next to go moves, and is deleted when it is done', async (t) => {
    const { accept, ring, fillRing, queue, deliverAll } = await open(t);
    await accept({ uid: 'small' });
    await accept({ uid: 'large' }, large);
    await fillRing();
    assert.equal(await tableOf('large'), '0');
    await ring.turn();
    assert.deepEqual([await tableOf('small'), await tableOf('large'), await bodies(0)], ['8', '8', '0']);
    assert.ok((await textOf(await queue.open('large'))).endsWith(large));
    await deliverAll();
    assert.equal(await bodies(8), '0');
  });

  test('few entries do not keep a table', async (t) => {
    const { accept, ring, ringOf } = await open(t);
    await accept({ uid: 'one' });
    await accept({ uid: 'other' });
    await ring.turn();
    await ringOf(1).turn();
    assert.equal(await tableOf('one'), '0');
    await ringOf(2).turn();
    assert.deepEqual([await tableOf('one'), await bodies(0), await bodies(8)], ['8', '0', '2']);
  });

  test('a message that is taken back leaves nothing, also when it has moved', async (t) => {
    const { prepare, ring, fillRing } = await open(t);
    const prepared = await prepare({ uid: 'back' }, large);
    await prepared.commit();
    await fillRing();
    await ring.turn();
    assert.notEqual(await bodies(8), '0');
    await prepared.abort();
    assert.equal(await bodies(8), '0');
  });

  test('a large message whose table was emptied before its commit is written again', async (t) => {
    const { prepare, accept, ring, queue, deliverAll } = await open(t);
    const prepared = await prepare({ uid: 'slow' }, large);
    await ring.turn();
    await accept({ uid: 'other' });
    await deliverAll();
    await ring.turn();
    assert.equal(await ask('select count(*) from postern.body where id not in (select body from postern.entry)'), '0');
    await prepared.commit();
    prepared.release();
    assert.ok((await textOf(await queue.open('slow'))).endsWith(large));
  });

  test('a reader goes on in the table that the message has moved to', async (t) => {
    const { accept, ring, fillRing, queue } = await open(t);
    await accept({ uid: 'read' }, large);
    await fillRing();
    const stream = await queue.open('read');
    await ring.turn();
    assert.equal(await tableOf('read'), '8');
    assert.ok((await textOf(stream)).endsWith(large));
  });

  test('a table is not emptied while a transaction that writes into it is under way, and not after its commit', async (t) => {
    const { ring, accept } = await open(t);
    await accept({ uid: 'model' });
    const slow = new pg.Client(server.url('template'));
    await slow.connect();
    t.after(() => slow.end());
    await slow.query('begin');
    await slow.query(`insert into postern.entry (uid, birth, subject, size, queued_at, expires_at, envelope, body, body_table)
      select 'slow', 'slow', subject, size, queued_at, expires_at, envelope, 'slow', 0 from postern.entry where uid = 'model'`);
    await slow.query("insert into postern.body (table_number, id, part, data) values (0, 'slow', 0, 'text')");
    await ask("delete from postern.recipient; delete from postern.entry where uid = 'model'");
    await ring.turn();
    const turned = ring.turn();
    const waiting = "select 1 from pg_locks where relation = 'postern.body_0'::regclass and not granted";
    await untilTrue('it waits for the table', async () => (await slow.query(waiting)).rowCount === 1);
    await slow.query('commit');
    await turned;
    await ring.turn();
    assert.equal(await ask("select count(*) from postern.body where id = 'slow'"), '1');
  });

  test('of many that turn the ring at once, each opens or empties a table once', async (t) => {
    const [first, second] = [await open(t), await open(t, 'mx2')];
    for (let round = 0; round < 20; round += 1) {
      await first.accept({ uid: `round${round}` });
      await Promise.all([first, second, first, second].map(({ ring }) => ring.turn()));
      assert.equal(
        await ask('select count(*) from postern.body_table where opened_at is not null and closed_at is null'),
        '1',
      );
    }
    assert.equal(
      await ask(`select count(*) from postern.entry e join postern.body b
      on b.table_number = e.body_table and b.id = e.body`),
      '20',
    );
  });

  /** What all nodes have said. */
  class Heard {
    readonly accepted = new Set<string>();
    readonly delivered = new Set<string>();
    readonly damaged = new Set<string>();

    readonly add = ([what, uid]: Said): void => void this[what].add(uid);
  }

  /** Every accepted message is delivered, or whole in the queue. */
  async function nothingIsLost(t: TestContext, heard: Heard): Promise<void> {
    const { queue, sentences, close } = await openHurried({ folder: server.folder, port: server.port, node: 'judge' });
    t.after(close);
    assert.deepEqual([...heard.damaged], []);
    const known = await ask("select uid || ' ' || (finished_at is null) from postern.entry");
    const isOpen = new Map(known.split('\n').map((line) => line.split(' ') as [string, string]));
    for (const uid of heard.accepted) {
      const state = isOpen.get(uid);
      assert.ok(state !== undefined, `${uid} is known`);
      if (state === 'true') assert.ok(await isWhole(queue, uid), `${uid} is whole`);
    }
    assert.deepEqual(sentences, []);
  }

  const moves = () => ask('select count(*) from postern.entry where body_table = 8');

  test('no message is lost or damaged while the ring turns as fast as it can', async (t) => {
    await ask(afresh);
    const heard = new Heard();
    const isOver = (): boolean => heard.accepted.size >= 600;
    const { folder, port } = server;
    await Promise.all(['mx1', 'mx2'].map((node) => load({ folder, port, node }, heard.add, isOver)));
    assert.ok(heard.delivered.size > 0);
    assert.notEqual(await moves(), '0', 'some have moved');
    await nothingIsLost(t, heard);
  });

  test('nor while nodes are killed, and stopped for longer than a session', async (t) => {
    await ask(afresh);
    const heard = new Heard();
    const start = (node: string): ChildProcess => {
      const given = JSON.stringify({ folder: server.folder, port: server.port, node });
      const code = `import { load } from ${JSON.stringify(new URL('./ring-load.js', import.meta.url).href)};
        const say = (said) => process.stdout.write(JSON.stringify(said) + '\\n');
        process.stdin.on('end', () => process.exit(9)).resume();
        await load(${given}, say, () => false);`;
      const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) =>
        heard.add(JSON.parse(line) as Said),
      );
      return child;
    };
    const kill = async (child: ChildProcess): Promise<void> => {
      assert.deepEqual([child.exitCode, child.signalCode], [null, null], 'it has not ended by itself');
      const closed = once(child, 'close');
      child.kill('SIGKILL');
      await closed;
    };
    const children = new Map(['mx1', 'mx2'].map((node) => [node, start(node)]));
    atEnd(t, () => {
      for (const child of children.values()) child.kill('SIGKILL');
    });
    for (let event = 0; event < 8; event += 1) {
      const most = heard.accepted.size + 30 + 17 * (event % 3);
      await untilTrue('more is accepted', () => heard.accepted.size >= most, 60_000);
      const [node, child] = [...children][event % 2] ?? assert.fail();
      if (event % 4 === 3) {
        child.kill('SIGSTOP');
        await ask(`update postern.session set dead = true where node = '${node}'`);
        const more = heard.accepted.size + 30;
        await untilTrue('the other one has accepted more', () => heard.accepted.size >= more, 60_000);
        child.kill('SIGCONT');
      } else {
        await kill(child);
        children.set(node, start(node));
      }
    }
    for (const child of children.values()) await kill(child);
    assert.ok(heard.delivered.size > 0);
    await nothingIsLost(t, heard);
  });
});
