import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { HandClock } from '../../../support/hand-clock.js';
import { claiming, newEntry, settlement, type EntryWishes } from '../../../kit/relay-queue/entries.js';
import { fileQueueFixture } from './queue-fixture.js';

const year = 365 * 86_400_000;
/** In seconds. */
const hour = 3600;
const day = 24 * hour;
const lifetime = 5 * day;

/** Its wall clock can be wrong. */
class WrongClock extends HandClock {
  ahead = 0;

  override now(): number {
    return super.now() + this.ahead;
  }
}

async function yearAhead(t: TestContext) {
  const clock = new WrongClock();
  clock.ahead = year;
  const fixture = await fileQueueFixture(t, { clock, random: () => 1000 });
  const accept = async (wishes: EntryWishes = {}): Promise<string> => {
    const entry = newEntry(clock.now(), wishes);
    const prepared = await fixture.queue.prepare(entry, await fixture.message());
    await prepared.commit();
    prepared.release();
    return entry.uid;
  };
  const defer = async (): Promise<void> => {
    const [lease] = await fixture.queue.claim(claiming(clock.now()));
    assert.ok(lease);
    await fixture.queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
  };
  /** The clock is put right. */
  const back = async (): Promise<number> => {
    await fixture.queue.housekeep(clock.now());
    clock.advance(30);
    clock.ahead = 0;
    await fixture.queue.housekeep(clock.now());
    return clock.now() + 1000;
  };
  const next = async (uid: string) => (await fixture.queue.find(uid))?.nextAttempt;
  /** What has become of it so many seconds later. */
  const later = async (uid: string, seconds: number) => {
    clock.advance(seconds);
    await fixture.queue.housekeep(clock.now());
    return (await fixture.queue.find(uid))?.state;
  };
  return { fixture, later, queue: fixture.queue, clock, accept, defer, back, next };
}

test('a clock that is put back leaves no deferred mail due far in the future', async (t) => {
  const { accept, defer, back, next } = await yearAhead(t);
  const uid = await accept();
  await defer();
  const due = await back();
  assert.equal(await next(uid), due);
});

test('nor mail that was not tried yet', async (t) => {
  const { accept, back, next } = await yearAhead(t);
  const uid = await accept();
  const due = await back();
  assert.equal(await next(uid), due);
});

test('nor what an operator wanted to have tried at once', async (t) => {
  const { queue, clock, accept, defer, back, next } = await yearAhead(t);
  const uid = await accept();
  await defer();
  await queue.mutate({ uids: [uid] }, { operation: 'retry' }, clock.now());
  const due = await back();
  assert.equal(await next(uid), due);
});

test('what a client has scheduled keeps its time', async (t) => {
  const { queue, clock, accept, defer, back, next } = await yearAhead(t);
  const at = clock.now() + year;
  const asked = await accept();
  await defer();
  await queue.mutate({ uids: [asked] }, { operation: 'retry', at }, clock.now());
  await back();
  assert.equal(await next(asked), at);
});

test('a clock that goes as it should puts nothing off', async (t) => {
  const { queue, clock, accept, defer, next } = await yearAhead(t);
  const uid = await accept();
  await defer();
  const due = await next(uid);
  clock.advance(30);
  await queue.housekeep(clock.now());
  assert.equal(await next(uid), due);
});

test('a clock that jumps ahead expires no recipient at once, but each is tried', async (t) => {
  const { queue, clock, accept, defer } = await yearAhead(t);
  await queue.housekeep(clock.now());
  const uid = await accept();
  await defer();
  clock.ahead += year;
  await defer();
  await queue.housekeep(clock.now());
  assert.equal((await queue.find(uid))?.state, 'deferred');
  clock.advance(3600);
  await queue.housekeep(clock.now());
  assert.equal((await queue.find(uid))?.state, 'expired', 'an hour later it is believed');
});

test('what was accepted while the clock was ahead is not kept longer: it counts as accepted when that is believed', async (t) => {
  const { later, accept, defer, back } = await yearAhead(t);
  const uid = await accept();
  await defer();
  await back();
  assert.equal(await later(uid, hour), 'deferred');
  assert.equal(await later(uid, lifetime - 60), 'deferred', 'it has all of its time');
  assert.equal(await later(uid, 60), 'expired');
});

for (const how of ['reopen', 'afterCrash'] as const) {
  test(`nor does its time begin again with a restart (${how})`, async (t) => {
    const { fixture, later, accept, defer, back } = await yearAhead(t);
    const uid = await accept();
    await defer();
    await back();
    assert.equal(await later(uid, hour), 'deferred');
    assert.equal(await later(uid, 2 * day), 'deferred');
    await fixture[how]();
    assert.equal(await later(uid, day), 'deferred');
    await fixture[how]();
    assert.equal(await later(uid, hour), 'deferred');
    assert.equal(await later(uid, 2 * day - hour - 60), 'deferred', 'it has all of its time');
    assert.equal(await later(uid, 60), 'expired');
  });
}

test('times of a clock that jumped are forgotten permanently', async (t) => {
  const { fixture, later, clock, accept, defer, back } = await yearAhead(t);
  const uid = await accept();
  await defer();
  await back();
  assert.equal(await later(uid, hour), 'deferred');
  clock.ahead = 30 * day * 1000;
  assert.equal(await later(uid, 60), 'deferred');
  await fixture.reopen();
  for (let hours = 0; hours < 3; hours += 1) assert.equal(await later(uid, hour), 'deferred');
});

test('nor does it count when the clock was put right unnoticed, so that the mail is of the past', async (t) => {
  const { fixture, later, clock, accept, defer, back } = await yearAhead(t);
  const uid = await accept();
  await defer();
  await back();
  assert.equal(await later(uid, hour), 'deferred');
  await fixture.queue.close();
  clock.ahead = year;
  await fixture.reopen();
  for (let hours = 0; hours < 3; hours += 1) assert.equal(await later(uid, hour), 'deferred');
});

test('mail does not expire sooner when a slow clock is put right', async (t) => {
  const { queue, clock, accept, defer } = await yearAhead(t);
  const uid = await accept();
  await defer();
  clock.ahead = 0;
  for (let hours = 0; hours < 3; hours += 1) {
    await queue.housekeep(clock.now());
    clock.advance(3600);
  }
  clock.ahead = year;
  for (let hours = 0; hours < 3; hours += 1) {
    await queue.housekeep(clock.now());
    clock.advance(3600);
  }
  assert.equal((await queue.find(uid))?.state, 'deferred');
});

test('a clock that went ahead and came back between two rounds leaves no deferred mail in the future', async (t) => {
  const { queue, clock, accept, defer, next } = await yearAhead(t);
  clock.ahead = 0;
  await queue.housekeep(clock.now());
  clock.ahead = year;
  const uid = await accept();
  await defer();
  const fresh = await accept();
  clock.ahead = 0;
  await queue.housekeep(clock.now());
  const due = clock.now() + 1000;
  assert.deepEqual([await next(uid), await next(fresh)], [due, due]);
  clock.advance(0.5);
  await queue.housekeep(clock.now());
  assert.equal(await next(fresh), due, 'once');
});

test('F-R27 after an outage that is longer than its lifetime, mail gets the time again in which it could not be tried', async (t) => {
  const clock = new WrongClock();
  const fixture = await fileQueueFixture(t, { clock, random: () => 0 });
  const entry = newEntry(clock.now());
  const prepared = await fixture.queue.prepare(entry, await fixture.message());
  await prepared.commit();
  prepared.release();
  const defer = async (): Promise<void> => {
    const [lease] = await fixture.queue.claim(claiming(clock.now()));
    assert.ok(lease);
    await fixture.queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    await fixture.queue.housekeep(clock.now());
  };
  for (let tries = 0; tries < 3; tries += 1) {
    await defer();
    clock.advance(hour);
  }
  const now = async () => await fixture.queue.find(entry.uid);
  const before = (await now())?.expiresAt ?? 0;
  clock.advance(10 * day);
  await fixture.afterCrash();
  await fixture.queue.housekeep(clock.now());
  await defer();
  assert.equal((await now())?.state, 'deferred');
  const after = (await now())?.expiresAt ?? 0;
  assert.ok(after > clock.now() + (lifetime - 4 * hour) * 1000, 'nearly all of its time is left');
  assert.ok(after <= clock.now() + lifetime * 1000, 'and no more than that');
  await fixture.reopen();
  assert.equal((await now())?.expiresAt, after, 'a restart right behind adds nothing');
  clock.advance(hour);
  await fixture.reopen();
  assert.equal((await now())?.expiresAt, after, 'nor does a short one');
  assert.ok(before < after);
});
