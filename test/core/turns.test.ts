import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type ClientPath, FairLine, turns } from '../../core/turns.js';

const own: ClientPath = ['192.0.2.1'];
const add = (client: ClientPath, run: () => void): void => turns.add({ client, run });

/** Notes the pass in which it is called; the event loop does not run during one. */
function passCounter(): () => number {
  let passes = 0;
  let isCounted = false;
  return () => {
    if (!isCounted) {
      passes += 1;
      isCounted = true;
      setImmediate(() => {
        isCounted = false;
      });
    }
    return passes;
  };
}

test('work of a turn of the event loop is done in one pass at its end, in order', async () => {
  const pass = passCounter();
  const done: string[] = [];
  add(own, () => {
    done.push(`a in ${pass()}`);
    add(own, () => done.push(`c in ${pass()}`));
  });
  await Promise.resolve();
  add(own, () => done.push(`b in ${pass()}`));
  assert.deepEqual(done, []);
  while (done.length < 3) await pause(5);
  assert.deepEqual(done, ['a in 1', 'b in 1', 'c in 2']);
});

test('connections that come together begin in few passes', async () => {
  const pass = passCounter();
  const begun: number[] = [];
  const server = createServer((socket) => {
    turns.accepted();
    add(own, () => {
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
  add(own, () => done.push(true));
  const until = performance.now() + 2000;
  while (done.length === 0 && performance.now() < until) {
    turns.accepted();
    await new Promise(setImmediate);
  }
  assert.deepEqual(done, [true]);
});

test('a pass has the asynchronous context of nobody', async () => {
  const context = new AsyncLocalStorage<string>();
  const seen = await context.run(
    'of the first one',
    () => new Promise((resolve) => add(own, () => resolve(context.getStore() ?? 'none'))),
  );
  assert.equal(seen, 'none');
});

test('an error of one work is uncaught, and keeps nobody else from theirs', async () => {
  const script = `
    import { turns } from ${JSON.stringify(new URL('../../core/turns.js', import.meta.url).href)};
    process.on('uncaughtException', (error) => console.log(error.message));
    turns.add({ client: ['a'], run: () => console.log('first') });
    turns.add({ client: ['a'], run: () => { throw new Error('broken'); } });
    turns.add({ client: ['a'], run: () => console.log('third') });
    turns.add({ client: ['a'], run: () => { throw new Error('broken again'); } });
  `;
  const printed = await new Promise<string>((resolve, reject) => {
    execFile(process.execPath, ['--input-type=module', '-e', script], { timeout: 20_000 }, (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    );
  });
  assert.deepEqual(printed.trim().split('\n'), ['first', 'broken', 'third', 'broken again']);
});

/** Keeps the event loop for so long. */
function work(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

test('who has much to do delays neither the event loop nor another network for long', async () => {
  const order: string[] = [];
  const pass = passCounter();
  const busy = ['10.1.0.0/16', '10.1.1.0/24'];
  for (let at = 0; at < 60; at += 1) {
    add([...busy, `10.1.1.${at % 30}`], () => {
      work(3);
      order.push(`busy in ${pass()}`);
    });
  }
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  add(['10.2.0.0/16', '10.2.1.0/24', '10.2.1.1'], () => order.push('other'));
  while (order.length < 61) await pause(5);
  const position = order.indexOf('other');
  assert.ok(position <= 12, `after ${position} works of the busy network`);
  const [largest = 0] = [...new Set(order)]
    .map((name) => order.filter((one) => one === name && one !== 'other').length)
    .sort((a, b) => b - a);
  assert.ok(largest <= 4, `${largest} works of 3 ms in one pass`);
});

test('promises that go on count as work of the pass', async () => {
  const begun: number[] = [];
  const pass = passCounter();
  const clients = Array.from({ length: 64 }, (_, at) => [`192.0.2.${at}`]);
  await Promise.all(
    clients.map(async (client) => {
      await turns.wait(client);
      begun.push(pass());
      await Promise.resolve();
      work(2);
    }),
  );
  const most = Math.max(...begun.map((number) => begun.filter((other) => other === number).length));
  assert.ok(most <= 16, `${most} works of 2 ms in one pass`);
});

test('a client that asks for turn after turn leaves turns to others', async () => {
  const order: string[] = [];
  let isOver = false;
  const greedy = (): void => {
    if (isOver) return;
    work(2);
    order.push('greedy');
    add(['a'], greedy);
  };
  add(['a'], greedy);
  add(['a'], greedy);
  await pause(20);
  for (let at = 0; at < 10; at += 1) {
    await turns.wait(['b']);
    order.push('modest');
  }
  isOver = true;
  const since = order.slice(order.indexOf('modest'));
  assert.equal(since.filter((name) => name === 'modest').length, 10);
  assert.ok(since.length <= 80, `${since.length} works until ten of the modest one were done`);
});

test('a line gives names their turns at each level, and forgets nothing', () => {
  const line = new FairLine<string>();
  for (const name of ['a1', 'a2', 'a3']) line.add(['x', 'a'], name);
  line.add(['x', 'b'], 'b1');
  line.add(['y', 'c'], 'c1');
  assert.equal(line.count, 5);
  assert.equal(line.countOf(['x']), 4);
  assert.equal(line.remove(['x', 'a'], 'a2'), true);
  assert.equal(line.remove(['x', 'a'], 'a2'), false);
  const order = Array.from({ length: 4 }, () => line.take());
  assert.deepEqual(order, ['a1', 'c1', 'b1', 'a3']);
  assert.equal(line.take(), undefined);
  line.add(['x', 'a'], 'a4');
  assert.equal(
    line.take((name) => name !== 'a'),
    undefined,
  );
  assert.equal(line.take(), 'a4');
  assert.equal(line.count, 0);
});
