import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FairQueue, type FairQueueOptions } from '../../core/fair-queue.js';
import { isProblem } from '../../core/problem.js';

const options = { concurrency: 1, maxWaitingPerClient: 3, maxWaiting: 6, retryAfterSeconds: 5, detail: 'Wait.' };

/** A queue whose tasks note their names and end when they are told to. */
function noted(given: FairQueueOptions = options) {
  const queue = new FairQueue(given);
  const order: string[] = [];
  const ends: (() => void)[] = [];
  const add = (protocol: string, client: string, name: string): Promise<unknown> =>
    queue
      .run([protocol, ...client.split('/')], async () => {
        order.push(name);
        await new Promise<void>((resolve) => ends.push(resolve));
      })
      .catch((error: unknown) => {
        assert.ok(isProblem(error) && error.problem === 'unavailable');
        order.push(`${name} refused`);
      });
  const finish = async (): Promise<void> => {
    while (ends.length > 0) {
      ends.shift()?.();
      await new Promise(setImmediate);
    }
  };
  return { queue, order, add, finish };
}

test('a client with many tasks delays another by no more than its running one', async () => {
  const { queue, order, add, finish } = noted();
  const all = [add('http', 'a', 'a1'), add('http', 'a', 'a2'), add('http', 'a', 'a3'), add('http', 'b', 'b1')];
  await new Promise(setImmediate);
  assert.equal(queue.idle, false);
  await finish();
  await Promise.all(all);
  assert.deepEqual(order, ['a1', 'a2', 'b1', 'a3']);
  assert.equal(queue.idle, true);
});

test('protocols take turns, however many clients one of them has', async () => {
  const { order, add, finish } = noted();
  const all = [add('http', 'a', 'a'), add('http', 'b', 'b'), add('http', 'c', 'c'), add('smtp', 'd', 'd')];
  await new Promise(setImmediate);
  await finish();
  await Promise.all(all);
  assert.deepEqual(order, ['a', 'b', 'd', 'c']);
});

test('a client with too many tasks is refused; a full queue makes room for a newcomer', async () => {
  const { order, add, finish } = noted();
  const all = ['1', '2', '3', '4', '5'].map((name) => add('http', 'a', `a${name}`));
  await new Promise(setImmediate);
  assert.deepEqual(order, ['a1', 'a5 refused']);
  all.push(...['1', '2', '3'].map((name) => add('http', 'b', `b${name}`)));
  all.push(add('http', 'c', 'c1'));
  await new Promise(setImmediate);
  assert.deepEqual(order, ['a1', 'a5 refused', 'a4 refused']);
  await finish();
  await Promise.all(all);
  assert.ok(order.includes('c1'));
});

test('a failed task hands over its place', async () => {
  const queue = new FairQueue(options);
  await assert.rejects(
    queue.run(['http', 'a'], () => Promise.reject(new Error('no'))),
    /no/,
  );
  assert.equal(await queue.run(['http', 'a'], () => Promise.resolve(1)), 1);
});

test('networks take turns, however many clients one of them has', async () => {
  const { order, add, finish } = noted();
  const all = ['1', '2', '3', '4'].map((name) => add('http', `a/${name}`, `a${name}`));
  all.push(add('http', 'b/1', 'b1'));
  await new Promise(setImmediate);
  await finish();
  await Promise.all(all);
  assert.deepEqual(order, ['a1', 'a2', 'b1', 'a3', 'a4']);
});

test('clients of one network fill the queue with one task each, and a newcomer of another is taken', async () => {
  const { order, add, finish } = noted();
  const all = Array.from({ length: 8 }, (_, at) => add('http', `a/${at}`, `a${at}`));
  all.push(add('http', 'b/1', 'b1'));
  await new Promise(setImmediate);
  assert.deepEqual(order, ['a0', 'a7 refused', 'a1 refused']);
  await finish();
  await Promise.all(all);
  assert.ok(order.includes('b1') && order.includes('a6'));
});

test('a full protocol does not affect the other', async () => {
  const { order, add, finish } = noted();
  const all = Array.from({ length: 7 }, (_, at) => add('http', `${at}`, `h${at}`));
  all.push(...Array.from({ length: 6 }, (_, at) => add('smtp', `${at}`, `s${at}`)));
  await new Promise(setImmediate);
  assert.deepEqual(order, ['h0']);
  await finish();
  await Promise.all(all);
  assert.equal(order.length, 13);
});

test('a name has no more tasks at once than its limit; what waits begins when one of them ends', async () => {
  const limit = (_: string, level: number): number => [Infinity, 3, 2][level] ?? Infinity;
  const { order, add, finish } = noted({ ...options, concurrency: 100, limit });
  const all = ['1', '2', '3', '4'].map((name) => add('http', 'a/a1', `first${name}`));
  all.push(add('http', 'a/a2', 'second1'), add('http', 'a/a2', 'second2'), add('http', 'b/b1', 'third'));
  await new Promise(setImmediate);
  assert.deepEqual(order, ['first1', 'first2', 'second1', 'third']);
  await finish();
  await Promise.all(all);
  assert.deepEqual(order.slice(4).sort(), ['first3', 'first4', 'second2']);
});

test('a task that has waited too long, or whose client has gone, is refused and takes nothing', async () => {
  const queue = new FairQueue({ ...options, maxWaitMs: 20 });
  await queue.enter(['http', 'a']);
  const isRefused = (error: unknown): boolean => isProblem(error) && error.problem === 'unavailable';
  await assert.rejects(Promise.resolve(queue.enter(['http', 'b'])), isRefused);
  const atEnd: (() => void)[] = [];
  const waiting = Promise.resolve(queue.enter(['http', 'c'], atEnd));
  for (const act of atEnd) act();
  await assert.rejects(waiting, isRefused);
  assert.equal(queue.idle, true);
  queue.leave(['http', 'a']);
  assert.equal(queue.enter(['http', 'd']), undefined);
});
