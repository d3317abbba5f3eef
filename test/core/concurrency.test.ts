import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { setTimeout as pause } from 'node:timers/promises';
import {
  abortAfter,
  allSettledOrThrow,
  KeyedMutex,
  mapBounded,
  PendingWork,
  Semaphore,
} from '../../core/concurrency.js';

test('a signal aborts in time though nothing else refers to its parts', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const other = new AbortController();
  const signals = Array.from({ length: 50 }, () => abortAfter(40, other.signal));
  for (let round = 0; round < 4; round += 1) {
    collect();
    await pause(5);
  }
  await pause(60);
  const late = signals.filter(({ aborted }) => !aborted).length;
  assert.equal(late, 0);
  assert.match(String(signals[0]?.reason), /TimeoutError/);
});

test('it aborts with the other one, and at once when that has aborted', () => {
  const other = new AbortController();
  const signal = abortAfter(60_000, other.signal);
  assert.equal(signal.aborted, false);
  other.abort(new Error('enough'));
  assert.match(String(signal.reason), /enough/);
  assert.equal(abortAfter(60_000, other.signal).aborted, true);
});

test('a semaphore grants released permits in the order of asking', async () => {
  const semaphore = new Semaphore(1);
  assert.equal(semaphore.acquire(), undefined);
  const granted: number[] = [];
  const waiting = [1, 2].map(async (n) => {
    await semaphore.acquire();
    granted.push(n);
  });
  semaphore.release();
  await pause(0);
  assert.deepEqual([granted, semaphore.taken], [[1], 1]);
  semaphore.release();
  await Promise.all(waiting);
  semaphore.release();
  assert.deepEqual([granted, semaphore.taken], [[1, 2], 0]);
});

test('a mutex runs shared tasks of a key side by side, and an exclusive one after them and before later ones', async () => {
  const mutex = new KeyedMutex();
  const events: string[] = [];
  const task = (name: string) => async (): Promise<void> => {
    events.push(`+${name}`);
    await pause(5);
    events.push(`-${name}`);
  };
  const failing = mutex.run('box', () => Promise.reject(new Error('full')));
  const shared = ['a', 'b'].map((name) => mutex.runShared('box', task(name)));
  await Promise.all(
    [...shared, mutex.run('box', task('c')), mutex.runShared('box', task('d')), mutex.run('other', task('e'))].concat(
      assert.rejects(failing),
    ),
  );
  assert.deepEqual(
    events.filter((event) => !event.endsWith('e')),
    ['+a', '+b', '-a', '-b', '+c', '-c', '+d', '-d'],
  );
  assert.ok(events.indexOf('+e') < events.indexOf('-a'));
});

test('pending work is idle when what began and what is tracked has ended', async () => {
  const work = new PendingWork();
  await work.idle();
  work.begin();
  const tracked = work.track(pause(5, 'done'));
  assert.equal(work.count, 2);
  let isIdle = false;
  const idle = work.idle().then(() => (isIdle = true));
  await work.settled();
  assert.deepEqual([await tracked, work.count, isIdle], ['done', 1, false]);
  work.end();
  await idle;
  assert.equal(work.track(3), 3);
});

test('the first failure is thrown when all tasks have ended', async () => {
  let ended = 0;
  const end = async (failure?: string): Promise<void> => {
    await pause(failure === undefined ? 5 : 0);
    ended += 1;
    if (failure !== undefined) throw new Error(failure);
  };
  await assert.rejects(allSettledOrThrow([end(), end('one'), end('two')]), /one/);
  assert.equal(ended, 3);
});

test('a bounded map keeps the order and the width', async () => {
  let running = 0;
  let most = 0;
  const doubled = await mapBounded([5, 1, 3, 2], 2, async (n) => {
    most = Math.max(most, (running += 1));
    await pause(n);
    running -= 1;
    return 2 * n;
  });
  assert.deepEqual([doubled, most], [[10, 2, 6, 4], 2]);
});
