import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { setTimeout as pause } from 'node:timers/promises';
import {
  abortAfter,
  allSettledOrThrow,
  KeyedMutex,
  mapBounded,
  onePass,
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

/** Notes the pass in which it is called; works of one pass run without a break. */
function passCounter(): () => number {
  let passes = 0;
  let isCounted = false;
  return () => {
    if (!isCounted) {
      passes += 1;
      isCounted = true;
      queueMicrotask(() => {
        isCounted = false;
      });
    }
    return passes;
  };
}

test('work of a turn of the event loop is done in one pass at its end, in order', async () => {
  const pass = passCounter();
  const done: string[] = [];
  onePass.add(() => {
    done.push(`a in ${pass()}`);
    onePass.add(() => done.push(`c in ${pass()}`));
  });
  await Promise.resolve();
  onePass.add(() => done.push(`b in ${pass()}`));
  assert.deepEqual(done, []);
  await pause(20);
  assert.deepEqual(done, ['a in 1', 'b in 1', 'c in 2']);
});

test('connections that come together begin in few passes', async () => {
  const pass = passCounter();
  const begun: number[] = [];
  const server = createServer((socket) => {
    onePass.accepted();
    onePass.add(() => {
      begun.push(pass());
      socket.destroy();
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const clients: Socket[] = Array.from({ length: 100 }, () => connect(port, '127.0.0.1'));
  await Promise.all(clients.map((client) => once(client.resume(), 'close')));
  server.close();
  const sizes = [...new Set(begun)].map((number) => begun.filter((other) => other === number).length);
  assert.equal(begun.length, 100);
  assert.ok(sizes.length <= 20 && Math.max(...sizes) >= 10, `passes of ${sizes.join(', ')}`);
});

test('a pass does not wait for ever while connections come', async () => {
  const done: boolean[] = [];
  onePass.add(() => done.push(true));
  const until = performance.now() + 2000;
  while (done.length === 0 && performance.now() < until) {
    onePass.accepted();
    await new Promise(setImmediate);
  }
  assert.deepEqual(done, [true]);
});

test('a pass has the asynchronous context of nobody', async () => {
  const context = new AsyncLocalStorage<string>();
  const seen = await context.run(
    'of the first one',
    () => new Promise((resolve) => onePass.add(() => resolve(context.getStore() ?? 'none'))),
  );
  assert.equal(seen, 'none');
});

test('an error of one work is uncaught, and keeps nobody else from theirs', async () => {
  const script = `
    import { onePass } from ${JSON.stringify(new URL('../../core/concurrency.js', import.meta.url).href)};
    process.on('uncaughtException', (error) => console.log(error.message));
    onePass.add(() => console.log('first'));
    onePass.add(() => { throw new Error('broken'); });
    onePass.add(() => console.log('third'));
    onePass.add(() => { throw new Error('broken again'); });
  `;
  const printed = await new Promise<string>((resolve, reject) => {
    execFile(process.execPath, ['--input-type=module', '-e', script], { timeout: 20_000 }, (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    );
  });
  assert.deepEqual(printed.trim().split('\n'), ['first', 'broken', 'third', 'broken again']);
});
