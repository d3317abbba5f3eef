import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { claiming, newEntry, settlement } from '../../../support/queue-entries.js';
import { accept, claimOne, entryOf, isThe } from '../../../support/relay-queue/ground.js';
import { bodiesOf, fileQueueGround } from './queue-ground.js';

test('what was accepted is there when the process has died', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground, { to: ['a@one.example', 'b@two.example'] });
  const before = await entryOf(ground.queue, uid);
  const queue = await ground.afterCrash();
  assert.deepEqual(await entryOf(queue, uid), before);
  assert.match(await text(await queue.open(uid)), /A line/);
});

test('a lease of a process that has died is due at once, spread out, and was an attempt that counts', async (t) => {
  const ground = await fileQueueGround(t, { spreadMs: 5000, random: (limit) => limit - 1 });
  const { uid } = await accept(ground);
  const lease = await claimOne(ground);
  const queue = await ground.afterCrash();
  const now = ground.clock.now();
  assert.equal(queue.nextDue(), now + 4999);
  const { state, attempts, history } = await entryOf(queue, uid);
  assert.deepEqual([state, attempts], ['deferred', 1]);
  assert.deepEqual([history[0]?.outcome, history[0]?.possibleDuplicate], ['lost', true]);
  ground.clock.advance(5);
  assert.ok((await claimOne(ground)).token > lease.token);
});

test('only the recipients whose outcome was not written down are tried again', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground, { to: ['a@one.example', 'b@two.example'] });
  const [one] = await ground.queue.claim(claiming(ground.clock.now()));
  assert.ok(one !== undefined);
  await ground.queue.settle(one, settlement(one, 'delivered', { at: ground.clock.now() }));
  const queue = await ground.afterCrash();
  const again = await queue.claim(claiming(ground.clock.now()));
  assert.equal(again.length, 1);
  assert.deepEqual(
    (await entryOf(queue, uid)).recipients.map(({ state }) => state),
    one.destination === 'one.example' ? ['delivered', 'active'] : ['active', 'delivered'],
  );
});

test('a message that kills one process after the other is held, and others flow', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  for (let crash = 0; crash < 3; crash++) {
    await claimOne(ground);
    await ground.afterCrash();
  }
  const { state, hold } = await entryOf(ground.queue, uid);
  assert.equal(state, 'held');
  assert.match(hold ?? '', /ended 3 times/);
  await accept(ground);
  await claimOne(ground);
  await ground.queue.mutate({ uids: [uid] }, { operation: 'release' }, ground.clock.now());
  await claimOne(ground);
  await ground.afterCrash();
  assert.equal((await entryOf(ground.queue, uid)).state, 'deferred', 'a release begins to count anew');
});

test('F-R17 messages that were only near when the server ended are tried alone, and not held', async (t) => {
  const ground = await fileQueueGround(t);
  const near = [await accept(ground), await accept(ground), await accept(ground, { to: ['b@two.example'] })];
  for (let crash = 0; crash < 2; crash++) {
    assert.equal((await ground.queue.claim(claiming(ground.clock.now()))).length, 3);
    await ground.afterCrash();
  }
  const { uid: other } = await accept(ground);
  const tried: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    assert.match(ground.queue.complaint() ?? '', /tried alone/);
    const [lease, ...others] = await ground.queue.claim(claiming(ground.clock.now()));
    assert.ok(lease !== undefined && others.length === 0);
    assert.deepEqual(await ground.queue.claim(claiming(ground.clock.now())), [], 'nothing beside it');
    tried.push(lease.uid);
    await ground.queue.settle(lease, settlement(lease, 'delivered', { at: ground.clock.now() }));
  }
  assert.deepEqual(tried.toSorted(), near.map(({ uid }) => uid).toSorted());
  assert.equal((await claimOne(ground)).uid, other);
  assert.equal(ground.queue.complaint(), undefined);
});

test('F-R17 one that brings the server down alone is held, and those that were near are not', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  const { uid: near } = await accept(ground);
  for (let crash = 0; crash < 6; crash++) {
    const leases = await ground.queue.claim(claiming(ground.clock.now()));
    for (const lease of leases.length === 1 && leases[0]?.uid === near ? leases : []) {
      await ground.queue.settle(lease, settlement(lease, 'deferred', { at: ground.clock.now(), nextAttempt: 0 }));
      await ground.queue.claim(claiming(ground.clock.now()));
    }
    await ground.afterCrash();
    ground.clock.advance(5);
  }
  assert.equal((await entryOf(ground.queue, uid)).state, 'held');
  assert.notEqual((await entryOf(ground.queue, near)).state, 'held');
});

test('what cannot be tried alone within a minute, as its destination has no room, holds up nobody any longer', async (t) => {
  const ground = await fileQueueGround(t);
  await accept(ground, { to: ['a@one.example'] });
  await accept(ground, { to: ['b@two.example'] });
  for (let crash = 0; crash < 2; crash++) {
    assert.equal((await ground.queue.claim(claiming(ground.clock.now()))).length, 2);
    await ground.afterCrash();
  }
  const { uid } = await accept(ground, { to: ['c@three.example'] });
  const room = (destination: string): number => (destination === 'three.example' ? 10 : 0);
  const claim = () => ground.queue.claim({ ...claiming(ground.clock.now()), room });
  assert.deepEqual(await claim(), []);
  ground.clock.advance(61);
  assert.deepEqual(
    (await claim()).map((lease) => lease.uid),
    [uid],
  );
});

test('an attempt that ends in between makes crashes count anew', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  for (let crash = 0; crash < 4; crash++) {
    await claimOne(ground);
    await ground.afterCrash();
    const lease = await claimOne(ground);
    const at = ground.clock.now();
    await ground.queue.settle(lease, settlement(lease, 'deferred', { at, nextAttempt: at }));
  }
  assert.equal((await entryOf(ground.queue, uid)).state, 'deferred');
});

test('an orderly stop in the middle of an attempt is no crash', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  for (let stop = 0; stop < 4; stop++) {
    await claimOne(ground);
    await ground.reopen();
  }
  const { state, attempts } = await entryOf(ground.queue, uid);
  assert.deepEqual([state, attempts], ['deferred', 4]);
});

test('an attempt that a clock gone wrong has put far away comes within the hour', async (t) => {
  const ground = await fileQueueGround(t, { random: () => 1000 });
  const at = ground.clock.now();
  const late = await accept(ground, { nextAttempt: at + 86_400_000 });
  const { uid } = await accept(ground);
  const lease = await claimOne(ground);
  const year = 365 * 86_400_000;
  await ground.queue.settle(lease, settlement(lease, 'deferred', { at, nextAttempt: at + year }));
  const queue = await ground.reopen();
  assert.equal((await entryOf(queue, uid)).nextAttempt, at + 1000);
  assert.equal((await entryOf(queue, late.uid)).nextAttempt, at + 86_400_000, 'the first attempt was asked for so');
  await queue.mutate({ uids: [uid] }, { operation: 'retry', at: at + year }, at);
  assert.equal((await entryOf(await ground.reopen(), uid)).nextAttempt, at + year, 'an operator may look far ahead');
});

test('mail that came while the clock was ahead is tried when a start finds the right time', async (t) => {
  const ground = await fileQueueGround(t, { random: () => 1000 });
  const at = ground.clock.now();
  const year = 365 * 86_400_000;
  const { uid } = await accept(ground, { queuedAt: at + year, nextAttempt: at + year });
  assert.equal((await entryOf(await ground.reopen(), uid)).nextAttempt, at + 1000);
});

test('a message without an entry is set aside when the queue is looked through, and never removed', async (t) => {
  const ground = await fileQueueGround(t);
  await ground.queue.prepare(newEntry(ground.clock.now()), await ground.message());
  const { uid } = await accept(ground);
  await ground.afterCrash();
  await ground.queue.housekeep(ground.clock.now());
  assert.deepEqual(await bodiesOf(ground.folder), [uid]);
  const [aside, ...others] = await ground.queue.quarantined();
  assert.match(aside?.reason ?? '', /ended before it accepted/);
  assert.deepEqual(others, []);
});

test('what a dead process has left of a message does not pass for its entry when it comes again', async (t) => {
  const ground = await fileQueueGround(t);
  const entry = newEntry(ground.clock.now());
  await ground.queue.prepare(entry, await ground.message());
  const queue = await ground.afterCrash();
  const again = async () => queue.prepare(entry, await ground.message('Subject: again\r\n\r\nAgain.\r\n'));
  await assert.rejects(again(), isThe('unavailable'));
  await queue.housekeep(ground.clock.now());
  const prepared = await again();
  await prepared.commit();
  prepared.release();
  assert.match(await text(await queue.open(entry.uid)), /Again/);
});

test('a message that is coming while the queue is looked through is left alone', async (t) => {
  const ground = await fileQueueGround(t);
  await ground.reopen();
  const entry = newEntry(ground.clock.now());
  const prepared = await ground.queue.prepare(entry, await ground.message());
  await ground.queue.housekeep(ground.clock.now());
  await prepared.commit();
  prepared.release();
  await text(await ground.queue.open(entry.uid));
});

test('messages that the spool still has to bring back are not missed', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  const path = (await ground.queue.locate({ folder: '', name: `${uid}.eml` })) ?? '';
  const bytes = await readFile(path);
  await rm(path);
  let bring = (): void => undefined;
  const ready = new Promise<void>((resolve) => {
    bring = resolve;
  });
  await ground.afterCrash({ ready });
  await ground.queue.housekeep(ground.clock.now());
  assert.equal((await entryOf(ground.queue, uid)).state, 'queued');
  await writeFile(path, bytes);
  bring();
  await ready;
  await ground.queue.housekeep(ground.clock.now());
  assert.equal((await entryOf(ground.queue, uid)).state, 'queued');
  await text(await ground.queue.open(uid));
});

test('what was delivered before a crash is not sent again, and its message goes', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  const lease = await claimOne(ground);
  ground.files.order({ call: 'unlink', code: 'EIO', path: uid });
  await ground.queue.settle(lease, settlement(lease, 'delivered', { at: ground.clock.now() }));
  await ground.afterCrash();
  ground.files.order();
  assert.deepEqual(await bodiesOf(ground.folder), [uid]);
  assert.deepEqual(await ground.queue.claim(claiming(ground.clock.now())), []);
  await ground.queue.housekeep(ground.clock.now());
  await ground.reopen();
  assert.deepEqual(await bodiesOf(ground.folder), []);
});

test('a journal that was left in many files is made one again at the start', async (t) => {
  const ground = await fileQueueGround(t, { segmentBytes: 64 * 1024, mostSegments: 16 });
  const { uid } = await accept(ground);
  const snapshots = async () => (await readdir(ground.folder)).filter((name) => name.startsWith('snapshot-'));
  const crashes = async (count: number): Promise<void> => {
    for (let crash = 0; crash < count; crash += 1) {
      await ground.queue.housekeep(ground.clock.now());
      await ground.afterCrash();
    }
  };
  await crashes(2);
  assert.deepEqual(await snapshots(), [], 'a few are nothing to see to');
  await crashes(3);
  assert.equal((await snapshots()).length, 1);
  await crashes(1);
  await entryOf(ground.queue, uid);
});

test('the journal is brought into snapshots again and again, and nothing is lost or doubled', async (t) => {
  const ground = await fileQueueGround(t, { journalBytes: 20_000, segmentBytes: 64 * 1024, mostSegments: 8 });
  const uids: string[] = [];
  for (let n = 0; n < 40; n++) uids.push((await accept(ground, { to: [`r${n}@d${n % 7}.example`] })).uid);
  for (let round = 1; round <= 12; round++) {
    for (const lease of await ground.queue.claim(claiming(ground.clock.now()))) {
      await ground.queue.settle(
        lease,
        settlement(lease, 'deferred', { at: ground.clock.now(), text: `round ${round}` }),
      );
    }
    ground.clock.advance(300);
    if (round % 5 === 0) await ground.afterCrash();
  }
  const before = await Promise.all(uids.map((uid) => entryOf(ground.queue, uid)));
  for (const { history, attempts } of before) {
    assert.equal(attempts, 12);
    assert.deepEqual(
      history.map(({ reply }) => reply?.text),
      Array.from({ length: 12 }, (_, n) => `round ${n + 1}`),
    );
  }
  await ground.afterCrash();
  assert.deepEqual(await Promise.all(uids.map((uid) => entryOf(ground.queue, uid))), before);
  await ground.queue.close();
  const names = await readdir(ground.folder);
  assert.equal(names.filter((name) => name.startsWith('snapshot-')).length, 1);
  // A journal whose segments were all in use when its process died has got one more: three times at most.
  assert.ok((await readdir(join(ground.folder, 'journal'))).length <= 8 + 3);
  assert.ok(!existsSync(join(ground.folder, 'quarantine')));
});

test('a lease says whether an earlier attempt may have delivered it unseen', async (t) => {
  const ground = await fileQueueGround(t);
  await accept(ground);
  const first = await claimOne(ground);
  assert.equal(first.interrupted, false);
  const at = ground.clock.now();
  await ground.queue.settle(first, settlement(first, 'deferred', { at, nextAttempt: at }));
  assert.equal((await claimOne(ground)).interrupted, false);
  await ground.afterCrash();
  ground.clock.advance(5);
  assert.equal((await claimOne(ground)).interrupted, true, 'its process has died');
  await ground.reopen();
  ground.clock.advance(5);
  assert.equal((await claimOne(ground)).interrupted, true, 'it was stopped in the middle');
});

test('no more finished entries are remembered than there may be, and the newest stay', async (t) => {
  const ground = await fileQueueGround(t, { maxFinished: 2 });
  const uids: string[] = [];
  for (let n = 0; n < 4; n += 1) {
    uids.push((await accept(ground)).uid);
    const lease = await claimOne(ground);
    await ground.queue.settle(lease, settlement(lease, 'delivered', { at: ground.clock.now() }));
  }
  await ground.queue.housekeep(ground.clock.now());
  const found = await Promise.all(uids.map((uid) => ground.queue.find(uid)));
  assert.deepEqual(
    found.map((entry) => entry?.state),
    [undefined, undefined, 'delivered', 'delivered'],
  );
});
