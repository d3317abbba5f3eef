import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { claiming, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, claimOne, entryOf, isThe } from '../../../kit/relay-queue/harness.js';
import { bodiesOf, fileQueueFixture, type FileQueueFixture } from './queue-fixture.js';

test('what was accepted is there when the process has died', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture, { to: ['a@one.example', 'b@two.example'] });
  const before = await entryOf(fixture.queue, uid);
  const queue = await fixture.afterCrash();
  assert.deepEqual(await entryOf(queue, uid), before);
  assert.match(await text(await queue.open(uid)), /A line/);
});

test('a lease of a process that has died is due at once, spread out, and was an attempt that counts', async (t) => {
  const fixture = await fileQueueFixture(t, { spreadMs: 5000, random: (limit) => limit - 1 });
  const { uid } = await accept(fixture);
  const lease = await claimOne(fixture);
  const queue = await fixture.afterCrash();
  const now = fixture.clock.now();
  assert.equal(queue.nextDue(), now + 4999);
  const { state, attempts, history } = await entryOf(queue, uid);
  assert.deepEqual([state, attempts], ['deferred', 1]);
  assert.deepEqual([history[0]?.outcome, history[0]?.possibleDuplicate], ['lost', true]);
  fixture.clock.advance(5);
  assert.ok((await claimOne(fixture)).token > lease.token);
});

test('only the recipients whose outcome was not written down are tried again', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture, { to: ['a@one.example', 'b@two.example'] });
  const [one] = await fixture.queue.claim(claiming(fixture.clock.now()));
  assert.ok(one !== undefined);
  await fixture.queue.settle(one, settlement(one, 'delivered', { at: fixture.clock.now() }));
  const queue = await fixture.afterCrash();
  const again = await queue.claim(claiming(fixture.clock.now()));
  assert.equal(again.length, 1);
  assert.deepEqual(
    (await entryOf(queue, uid)).recipients.map(({ state }) => state),
    one.destination === 'one.example' ? ['delivered', 'active'] : ['active', 'delivered'],
  );
});

test('a message that kills one process after the other is held, and others flow', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  for (let crash = 0; crash < 3; crash++) {
    await claimOne(fixture);
    await fixture.afterCrash();
  }
  const { state, hold } = await entryOf(fixture.queue, uid);
  assert.equal(state, 'held');
  assert.match(hold ?? '', /ended 3 times/);
  await accept(fixture);
  await claimOne(fixture);
  await fixture.queue.mutate({ uids: [uid] }, { operation: 'release' }, fixture.clock.now());
  await claimOne(fixture);
  await fixture.afterCrash();
  assert.equal((await entryOf(fixture.queue, uid)).state, 'deferred', 'a release begins to count anew');
});

test('F-R17 messages that were only near when the server ended are tried alone, and not held', async (t) => {
  const fixture = await fileQueueFixture(t);
  const near = [await accept(fixture), await accept(fixture), await accept(fixture, { to: ['b@two.example'] })];
  for (let crash = 0; crash < 2; crash++) {
    assert.equal((await fixture.queue.claim(claiming(fixture.clock.now()))).length, 3);
    await fixture.afterCrash();
  }
  const { uid: other } = await accept(fixture);
  const tried: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    assert.match(fixture.queue.complaint() ?? '', /tried alone/);
    const [lease, ...others] = await fixture.queue.claim(claiming(fixture.clock.now()));
    assert.ok(lease !== undefined && others.length === 0);
    assert.deepEqual(await fixture.queue.claim(claiming(fixture.clock.now())), [], 'nothing beside it');
    tried.push(lease.uid);
    await fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
  }
  assert.deepEqual(tried.toSorted(), near.map(({ uid }) => uid).toSorted());
  assert.equal((await claimOne(fixture)).uid, other);
  assert.equal(fixture.queue.complaint(), undefined);
});

test('F-R17 one that brings the server down alone is held, and those that were near are not', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  const { uid: near } = await accept(fixture);
  for (let crash = 0; crash < 6; crash++) {
    const leases = await fixture.queue.claim(claiming(fixture.clock.now()));
    for (const lease of leases.length === 1 && leases[0]?.uid === near ? leases : []) {
      await fixture.queue.settle(lease, settlement(lease, 'deferred', { at: fixture.clock.now(), nextAttempt: 0 }));
      await fixture.queue.claim(claiming(fixture.clock.now()));
    }
    await fixture.afterCrash();
    fixture.clock.advance(5);
  }
  assert.equal((await entryOf(fixture.queue, uid)).state, 'held');
  assert.notEqual((await entryOf(fixture.queue, near)).state, 'held');
});

test('what cannot be tried alone within a minute, as its destination has no room, no longer blocks others', async (t) => {
  const fixture = await fileQueueFixture(t);
  await accept(fixture, { to: ['a@one.example'] });
  await accept(fixture, { to: ['b@two.example'] });
  for (let crash = 0; crash < 2; crash++) {
    assert.equal((await fixture.queue.claim(claiming(fixture.clock.now()))).length, 2);
    await fixture.afterCrash();
  }
  const { uid } = await accept(fixture, { to: ['c@three.example'] });
  const room = (destination: string): number => (destination === 'three.example' ? 10 : 0);
  const claim = () => fixture.queue.claim({ ...claiming(fixture.clock.now()), room });
  assert.deepEqual(await claim(), []);
  fixture.clock.advance(61);
  assert.deepEqual(
    (await claim()).map((lease) => lease.uid),
    [uid],
  );
});

test('an attempt that ends in between makes crashes count anew', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  for (let crash = 0; crash < 4; crash++) {
    await claimOne(fixture);
    await fixture.afterCrash();
    const lease = await claimOne(fixture);
    const at = fixture.clock.now();
    await fixture.queue.settle(lease, settlement(lease, 'deferred', { at, nextAttempt: at }));
  }
  assert.equal((await entryOf(fixture.queue, uid)).state, 'deferred');
});

test('an orderly stop in the middle of an attempt is no crash', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  for (let stop = 0; stop < 4; stop++) {
    await claimOne(fixture);
    await fixture.reopen();
  }
  const { state, attempts } = await entryOf(fixture.queue, uid);
  assert.deepEqual([state, attempts], ['deferred', 4]);
});

test('an attempt that a clock gone wrong has put far away comes within the hour', async (t) => {
  const fixture = await fileQueueFixture(t, { random: () => 1000 });
  const at = fixture.clock.now();
  const late = await accept(fixture, { nextAttempt: at + 86_400_000 });
  const { uid } = await accept(fixture);
  const lease = await claimOne(fixture);
  const year = 365 * 86_400_000;
  await fixture.queue.settle(lease, settlement(lease, 'deferred', { at, nextAttempt: at + year }));
  const queue = await fixture.reopen();
  assert.equal((await entryOf(queue, uid)).nextAttempt, at + 1000);
  assert.equal((await entryOf(queue, late.uid)).nextAttempt, at + 86_400_000, 'the first attempt was asked for so');
  await queue.mutate({ uids: [uid] }, { operation: 'retry', at: at + year }, at);
  assert.equal((await entryOf(await fixture.reopen(), uid)).nextAttempt, at + year, 'an operator may look far ahead');
});

test('mail that came while the clock was ahead is tried when a start finds the right time', async (t) => {
  const fixture = await fileQueueFixture(t, { random: () => 1000 });
  const at = fixture.clock.now();
  const year = 365 * 86_400_000;
  const { uid } = await accept(fixture, { queuedAt: at + year, nextAttempt: at + year });
  assert.equal((await entryOf(await fixture.reopen(), uid)).nextAttempt, at + 1000);
});

test('a message without an entry is set aside when the queue is looked through, and never removed', async (t) => {
  const fixture = await fileQueueFixture(t);
  await fixture.queue.prepare(newEntry(fixture.clock.now()), await fixture.message());
  const { uid } = await accept(fixture);
  await fixture.afterCrash();
  await fixture.queue.housekeep(fixture.clock.now());
  assert.deepEqual(await bodiesOf(fixture.folder), [uid]);
  const [aside, ...others] = await fixture.queue.quarantine.list();
  assert.match(aside?.reason ?? '', /ended before it accepted/);
  assert.deepEqual(others, []);
});

test('leftovers of a dead process are not taken for the entry when the message comes again', async (t) => {
  const fixture = await fileQueueFixture(t);
  const entry = newEntry(fixture.clock.now());
  await fixture.queue.prepare(entry, await fixture.message());
  const queue = await fixture.afterCrash();
  const again = async () => queue.prepare(entry, await fixture.message('Subject: again\r\n\r\nAgain.\r\n'));
  await assert.rejects(again(), isThe('unavailable'));
  await queue.housekeep(fixture.clock.now());
  const prepared = await again();
  await prepared.commit();
  prepared.release();
  assert.match(await text(await queue.open(entry.uid)), /Again/);
});

test('a message that is coming while the queue is looked through is left alone', async (t) => {
  const fixture = await fileQueueFixture(t);
  await fixture.reopen();
  const entry = newEntry(fixture.clock.now());
  const prepared = await fixture.queue.prepare(entry, await fixture.message());
  await fixture.queue.housekeep(fixture.clock.now());
  await prepared.commit();
  prepared.release();
  await text(await fixture.queue.open(entry.uid));
});

test('messages that the spool still has to bring back are not missed', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  const path = (await fixture.queue.locate({ folder: '', name: `${uid}.eml` })) ?? '';
  const bytes = await readFile(path);
  await rm(path);
  let bring = (): void => undefined;
  const ready = new Promise<void>((resolve) => {
    bring = resolve;
  });
  await fixture.afterCrash({ ready });
  await fixture.queue.housekeep(fixture.clock.now());
  assert.equal((await entryOf(fixture.queue, uid)).state, 'queued');
  await writeFile(path, bytes);
  bring();
  await ready;
  await fixture.queue.housekeep(fixture.clock.now());
  assert.equal((await entryOf(fixture.queue, uid)).state, 'queued');
  await text(await fixture.queue.open(uid));
});

test('what was delivered before a crash is not sent again, and its message goes', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  const lease = await claimOne(fixture);
  fixture.files.order({ call: 'unlink', code: 'EIO', path: uid });
  await fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
  await fixture.afterCrash();
  fixture.files.order();
  assert.deepEqual(await bodiesOf(fixture.folder), [uid]);
  assert.deepEqual(await fixture.queue.claim(claiming(fixture.clock.now())), []);
  await fixture.queue.housekeep(fixture.clock.now());
  await fixture.reopen();
  assert.deepEqual(await bodiesOf(fixture.folder), []);
});

test('a journal that was left in many files is made one again at the start', async (t) => {
  const fixture = await fileQueueFixture(t, { segmentBytes: 64 * 1024, maxSegments: 16 });
  const { uid } = await accept(fixture);
  const snapshots = async () => (await readdir(fixture.folder)).filter((name) => name.startsWith('snapshot-'));
  const crashes = async (count: number): Promise<void> => {
    for (let crash = 0; crash < count; crash += 1) {
      await fixture.queue.housekeep(fixture.clock.now());
      await fixture.afterCrash();
    }
  };
  await crashes(2);
  assert.deepEqual(await snapshots(), [], 'a few are nothing to see to');
  await crashes(3);
  assert.equal((await snapshots()).length, 1);
  await crashes(1);
  await entryOf(fixture.queue, uid);
});

test('the journal is brought into snapshots again and again, and nothing is lost or doubled', async (t) => {
  const fixture = await fileQueueFixture(t, { journalBytes: 20_000, segmentBytes: 64 * 1024, maxSegments: 8 });
  const uids: string[] = [];
  for (let n = 0; n < 40; n++) uids.push((await accept(fixture, { to: [`r${n}@d${n % 7}.example`] })).uid);
  for (let round = 1; round <= 12; round++) {
    for (const lease of await fixture.queue.claim(claiming(fixture.clock.now()))) {
      await fixture.queue.settle(
        lease,
        settlement(lease, 'deferred', { at: fixture.clock.now(), text: `round ${round}` }),
      );
    }
    fixture.clock.advance(300);
    if (round % 5 === 0) await fixture.afterCrash();
  }
  const before = await Promise.all(uids.map((uid) => entryOf(fixture.queue, uid)));
  for (const { history, attempts } of before) {
    assert.equal(attempts, 12);
    assert.deepEqual(
      history.map(({ reply }) => reply?.text),
      Array.from({ length: 12 }, (_, n) => `round ${n + 1}`),
    );
  }
  await fixture.afterCrash();
  assert.deepEqual(await Promise.all(uids.map((uid) => entryOf(fixture.queue, uid))), before);
  await fixture.queue.close();
  const names = await readdir(fixture.folder);
  assert.equal(names.filter((name) => name.startsWith('snapshot-')).length, 1);
  // A journal whose segments were all in use when its process died has got one more: three times at most.
  assert.ok((await readdir(join(fixture.folder, 'journal'))).length <= 8 + 3);
  assert.ok(!existsSync(join(fixture.folder, 'quarantine')));
});

test('a lease says whether an earlier attempt may have delivered it unseen', async (t) => {
  const fixture = await fileQueueFixture(t);
  await accept(fixture);
  const first = await claimOne(fixture);
  assert.equal(first.interrupted, false);
  const at = fixture.clock.now();
  await fixture.queue.settle(first, settlement(first, 'deferred', { at, nextAttempt: at }));
  assert.equal((await claimOne(fixture)).interrupted, false);
  await fixture.afterCrash();
  fixture.clock.advance(5);
  assert.equal((await claimOne(fixture)).interrupted, true, 'its process has died');
  await fixture.reopen();
  fixture.clock.advance(5);
  assert.equal((await claimOne(fixture)).interrupted, true, 'it was stopped in the middle');
});

test('no more finished entries are remembered than there may be, and the newest stay', async (t) => {
  const fixture = await fileQueueFixture(t, { maxFinished: 2 });
  const uids: string[] = [];
  for (let n = 0; n < 4; n += 1) {
    uids.push((await accept(fixture)).uid);
    const lease = await claimOne(fixture);
    await fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
  }
  await fixture.queue.housekeep(fixture.clock.now());
  const found = await Promise.all(uids.map((uid) => fixture.queue.find(uid)));
  assert.deepEqual(
    found.map((entry) => entry?.state),
    [undefined, undefined, 'delivered', 'delivered'],
  );
});

test('the newest finished entries stay after a restart, whichever was accepted first', async (t) => {
  const fixture = await fileQueueFixture(t, { maxFinished: 1 });
  const first = await accept(fixture);
  const lease = await claimOne(fixture);
  const second = await accept(fixture);
  await finishOne(fixture);
  await fixture.queue.settle(lease, settlement(lease, 'deferred', { at: fixture.clock.now() }));
  await fixture.reopen();
  fixture.clock.advance(5000);
  await finishOne(fixture);
  const queue = await fixture.afterCrash();
  await queue.housekeep(fixture.clock.now());
  assert.equal(await queue.find(second.uid), undefined);
  assert.equal((await queue.find(first.uid))?.state, 'delivered');
});

async function finishOne(fixture: FileQueueFixture): Promise<void> {
  const lease = await claimOne(fixture);
  await fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
}
