import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { before, describe, test } from 'node:test';
import { crc32 } from 'node:zlib';
import type { Entry } from '../../../../core/contracts/queue-entry.js';
import { type MovableQueue, moveEntries } from '../../../../plugins/client-queue/queue/moving.js';
import { claiming, reply, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, claimOne, type TestContext } from '../../../kit/relay-queue/harness.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { fillTables } from '../../cluster/cluster-fixture.js';
import { bodiesOf, type FileQueueFixture, fileQueueFixture } from '../queue/queue-fixture.js';
import { postgresQueues } from './postgres-fixture.js';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';

async function move(from: MovableQueue, to: MovableQueue, dryRun = false) {
  const moved = await moveEntries(from, to, { dryRun, progress: () => undefined });
  if (to instanceof PostgresRelayQueue) await to.catchUp();
  return moved;
}

/** What an operator and a server see of the entries, messages among it. */
async function pictureOf(queue: MovableQueue & { find(uid: string): Promise<Entry | undefined> }) {
  const uids = [...(await queue.uids())].sort();
  return Promise.all(
    uids.map(async (uid) => {
      const entry = await queue.find(uid);
      assert.ok(entry !== undefined);
      const [whole] = await queue.wholes([uid]);
      const { holdUntil, crashes, countsFrom, noticeCount } = whole?.entry.details ?? assert.fail();
      const content = entry.hasMessage ? crc32(await buffer(await queue.open(uid))) : undefined;
      return { entry, content, holdUntil, crashes, countsFrom, noticeCount };
    }),
  );
}

/** Entries of each kind. */
async function fill(harness: FileQueueFixture): Promise<void> {
  const { queue, clock } = harness;
  const now = () => clock.now();
  const settle = async (fate: 'delivered' | 'deferred' | 'bounced', text = 'Said') => {
    const lease = await claimOne(harness);
    await queue.settle(lease, settlement(lease, fate, { at: now(), text }));
    return lease.uid;
  };
  await accept(harness, { to: ['a@one.example', 'b@one.example', 'c@two.example'], subject: 'several' });
  await settle('deferred', 'Later');
  await settle('bounced', 'Unknown');
  await accept(harness, { subject: 'delivered' });
  await settle('delivered');
  await accept(harness, { subject: 'bounced, with a notice' });
  await settle('bounced');
  await accept(harness, { subject: 'told' });
  const told = await settle('bounced');
  const [{ notice } = assert.fail()] = (await queue.notices(10)).filter(({ entry }) => entry.uid === told);
  await queue.noticed(told, [notice.id]);
  await accept(harness, { subject: 'tried often' });
  for (let tries = 0; tries < 3; tries += 1) {
    await settle('deferred', `try ${tries}`);
    clock.advance(301);
  }
  const asked = await accept(harness, { subject: 'asked for', nextAttempt: now() + 9_000_000 });
  await queue.mutate({ uids: [asked.uid] }, { operation: 'retry', at: now() + 5_000_000 }, now());
  const until = await accept(harness, { subject: 'held until', nextAttempt: now() + 1_000_000 });
  const hold = { operation: 'hold', reason: 'Too many', until: now() + 77_000 } as const;
  await queue.mutate({ uids: [until.uid] }, hold, now());
  await accept(harness, { subject: 'held', hold: 'On request', discardAt: now() + 88_000_000 });
  const deleted = await accept(harness, { subject: 'deleted', nextAttempt: now() + 1_000_000 });
  await queue.mutate({ uids: [deleted.uid] }, { operation: 'delete' }, now());
  await accept(
    harness,
    {
      subject: 'Grüße\u0000\ud800',
      sender: null,
      nextAttempt: now() + 1_000_000,
      envelopeId: 'QQ314159',
      ret: 'hdrs',
      route: 'out',
      noticeOf: told,
      to: [
        {
          address: 'd@three.example',
          destination: 'target:lmtp',
          hop: { target: 'lmtp', destination: 'd', data: { port: 24 } },
          notify: ['failure', 'delay'],
          originalRecipient: 'rfc822;d@three.example',
          lastReply: reply(450, 'Elsewhere', now()),
        },
      ],
    },
    `Subject: large\r\n\r\n${'x'.repeat(300_000)}\r\n`,
  );
}

describe('entries go from one queue to the other', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });
  const shared = async (t: TestContext) => (await postgresQueues(() => server)(t)).queue as PostgresRelayQueue;

  test('all kinds of entries are the same behind it, and behind the way back', async (t) => {
    const [files, database] = [await fileQueueFixture(t), await shared(t)];
    await fill(files);
    const before = await pictureOf(files.queue);
    assert.equal(before.length, 10);
    assert.deepEqual(await move(files.queue, database, true), { entries: 10, moved: 10, there: 0, left: [] });
    assert.deepEqual(await database.uids(), []);
    assert.deepEqual(await move(files.queue, database), { entries: 10, moved: 10, there: 0, left: [] });
    assert.deepEqual(await pictureOf(database), before);
    assert.deepEqual(await files.queue.uids(), []);
    assert.deepEqual(await (await files.reopen()).uids(), []);

    const back = await fileQueueFixture(t);
    await move(database, back.queue);
    assert.deepEqual(await pictureOf(back.queue), before);
    await back.reopen();
    assert.deepEqual(await pictureOf(back.queue), before);
    await back.queue.housekeep(back.clock.now());
    assert.deepEqual(await back.queue.quarantine.list(), []);
    assert.deepEqual(await database.uids(), []);
  });

  test('one whose envelope cannot be read stays, and the others go', async (t) => {
    const [harness, files] = [await postgresQueues(() => server)(t), await fileQueueFixture(t)];
    for (const uid of ['a', 'b', 'c']) await accept(harness, { uid, nextAttempt: harness.clock.now() + 60_000 });
    const database = harness.queue as PostgresRelayQueue;
    await database.offer();
    await server.psql("update postern.entry set envelope = '{}' where uid = 'b'", 'template');
    const left = [{ uid: 'b', reason: 'Its envelope cannot be read.' }];
    assert.deepEqual(await move(database, files.queue), { entries: 3, moved: 2, there: 0, left });
    assert.deepEqual(await database.uids(), ['b']);
  });

  test('what has come is sent, and the outcome counts', async (t) => {
    const [files, harness] = [await fileQueueFixture(t), await postgresQueues(() => server)(t)];
    const { uid } = await accept(files);
    await move(files.queue, harness.queue as PostgresRelayQueue);
    await harness.current?.();
    harness.clock.advance(60);
    const lease = await claimOne(harness);
    assert.equal(lease.uid, uid);
    await harness.queue.settle(lease, settlement(lease, 'delivered', { at: harness.clock.now() }));
    assert.equal((await harness.queue.find(uid))?.state, 'delivered');
  });

  test('another node sends it before the last has come', async (t) => {
    const [files, harness] = [await fileQueueFixture(t), await postgresQueues(() => server)(t)];
    const other = (await harness.another?.())?.queue as PostgresRelayQueue;
    for (let nth = 0; nth < 70; nth += 1) await accept(files);
    const claimed: number[] = [];
    const watched: MovableQueue = {
      uids: () => files.queue.uids(),
      wholes: async (uids) => {
        await other.catchUp(true);
        claimed.push((await other.claim(claiming(files.clock.now() + 60_000))).length);
        return files.queue.wholes(uids);
      },
      open: (uid) => files.queue.open(uid),
      adopt: (moved) => files.queue.adopt(moved),
      drop: (wholes) => files.queue.drop(wholes),
    };
    await move(watched, harness.queue as PostgresRelayQueue);
    const [before, after] = claimed;
    assert.ok(before === 0 && after !== undefined && after > 0, String(claimed));
  });

  test('many recipients that nobody may claim yet are released in several statements', async (t) => {
    const harness = await postgresQueues(() => server)(t);
    const to = Array.from({ length: 400 }, (_, nth) => `r${nth}@one.example`);
    for (let nth = 0; nth < 7; nth += 1) await accept(harness, { to });
    await server.psql(
      `insert into postern.session (key, node, instance, dead) values ('dead', 'x', 'x', true);
       insert into postern.recipient (uid, idx, queued_at, address, destination, state, lane, turn, due, session)
         select 'dead' || n, 0, 1, 'a@two.example', 'two.example', 2, 3, n, 1, 'dead' from generate_series(1, 3500) n;
       create function bounded() returns trigger language plpgsql as $$ begin
         if (select count(*) from changed) > 1200 then raise 'too many'; end if;
         return null;
       end $$;
       create trigger bounded after update on postern.recipient referencing new table as changed
         for each statement execute function bounded()`,
      'template',
    );
    t.after(() => server.psql('drop function bounded cascade; truncate postern.recipient', 'template'));
    await (harness.queue as PostgresRelayQueue).catchUp();
    assert.equal(await server.psql('select count(*) from postern.recipient where lane = 3', 'template'), '0');
  });

  test('after a kill between the two queues nothing is there twice, and nothing is lost', async (t) => {
    const [files, database] = [await fileQueueFixture(t), await shared(t)];
    await fill(files);
    const before = await pictureOf(files.queue);
    const killed = (queue: MovableQueue): MovableQueue => ({
      uids: () => queue.uids(),
      wholes: (uids) => queue.wholes(uids),
      open: (uid) => queue.open(uid),
      bytes: async (uid) => queue.bytes?.(uid),
      adopt: (moved) => queue.adopt(moved),
      drop: () => Promise.reject(new Error('killed')),
    });
    await assert.rejects(move(killed(files.queue), database), /killed/);
    assert.deepEqual(await pictureOf(files.queue), before);
    assert.deepEqual(await move(files.queue, database), { entries: 10, moved: 0, there: 10, left: [] });
    assert.deepEqual(await pictureOf(database), before);

    await assert.rejects(move(killed(database), files.queue), /killed/);
    assert.equal((await database.uids()).length, 10);
    const [{ entry } = assert.fail()] = before.filter(({ entry: one }) => one.subject === 'held until');
    await database.mutate({ uids: [entry.uid] }, { operation: 'release' }, files.clock.now());
    const changed = await pictureOf(database);
    assert.deepEqual(await move(database, files.queue), { entries: 10, moved: 1, there: 9, left: [] });
    assert.deepEqual(await pictureOf(files.queue), changed);
    await files.reopen();
    assert.deepEqual(await pictureOf(files.queue), changed);
    assert.equal((await bodiesOf(files.folder)).length, changed.filter(({ content }) => content !== undefined).length);
  });

  test('what is being sent, what is another one, and what has no message stay, and are named', async (t) => {
    const [files, harness] = [await fileQueueFixture(t), await postgresQueues(() => server)(t)];
    const database = harness.queue as PostgresRelayQueue;
    const { uid: sent } = await accept(harness);
    await claimOne(harness);
    const [{ reason } = assert.fail()] = (await move(database, files.queue)).left;
    assert.match(reason, /being sent/);
    const { uid: other } = await accept(files, { uid: sent, subject: 'another' });
    assert.match((await move(files.queue, database)).left[0]?.reason ?? '', /another message with this id/);
    assert.equal((await database.find(other))?.subject, 'A subject');
    const { uid: gone } = await accept(files);
    await files.files.unlink(`${files.folder}/${await shardOf(files.folder, gone)}/${gone}.eml`);
    const { left } = await move(files.queue, database);
    assert.deepEqual(left.map(({ uid }) => uid).sort(), [sent, gone].sort());
    assert.equal(await database.find(gone), undefined);
  });

  test('a message that changes while it goes stays as it is, and its copy is taken back', async (t) => {
    const [files, database] = [await fileQueueFixture(t), await shared(t)];
    await accept(files, { nextAttempt: files.clock.now() + 1_000_000 });
    await move(files.queue, database);
    const [uid = ''] = await database.uids();
    const adopt = files.queue.adopt.bind(files.queue);
    files.queue.adopt = async (moved) => {
      await adopt(moved);
      await database.mutate({ uids: [uid] }, { operation: 'hold' }, files.clock.now());
    };
    const { moved, left } = await move(database, files.queue);
    assert.deepEqual([moved, left.map(({ reason }) => reason)], [0, ['It has changed meanwhile.']]);
    assert.deepEqual(await files.queue.uids(), []);
    assert.deepEqual(await database.claim(claiming(files.clock.now())), []);
  });
});

async function shardOf(folder: string, uid: string): Promise<string> {
  for (const shard of '0123456789abcdef')
    if ((await readdir(`${folder}/${shard}`)).includes(`${uid}.eml`)) return shard;
  return assert.fail('there is no such message');
}
