import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { Worker, type WorkerOptions } from 'node:worker_threads';
import type { FromThread } from '../../../core/watchdog/main-watch.js';
import type { WorkerData } from '../../../core/watchdog/watch-thread.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';

/** Longer than a thread with nothing left to do needs to end. */
const lingerMs = 500;

function startThread(t: TestContext, module: string, options: WorkerOptions = {}): Worker {
  const worker = new Worker(new URL(module, import.meta.url), { env: {}, execArgv: [], ...options });
  t.after(() => worker.terminate());
  return worker;
}

/** One that ends while Node still answers to its session takes the whole process with it. */
async function outlivesItsLastWord(worker: Worker): Promise<void> {
  let isGone = false;
  worker.once('exit', () => (isGone = true));
  await wait(lingerMs);
  assert.equal(isGone, false);
}

test('the thread of a thread dump stays until the main thread ends it', async (t) => {
  const worker = startThread(t, '../../../plugins/monitoring/system/stack-probe.js');
  await once(worker, 'message');
  await outlivesItsLastWord(worker);
});

test('the watching thread stays until the main thread ends it, also during a stall', async (t) => {
  const cells = () => new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const file = join(await temporaryFolder(t), 'stalls.json');
  const workerData: WorkerData = {
    beat: cells(),
    running: cells(),
    file,
    thresholds: { intervalMs: 20, reportAboveMs: 100, recordAboveMs: 150, killAboveMs: 0 },
    stalls: [],
  };
  const worker = startThread(t, '../../../core/watchdog/watch-thread.js', { workerData });
  const heard: FromThread[] = [];
  const last = new Promise<void>((resolve) => {
    worker.on('message', (message: FromThread) => {
      heard.push(message);
      if ('ended' in message) resolve();
    });
  });
  await untilTrue('a stall on record', () => existsSync(file));
  worker.postMessage({ end: true }, []);
  await Promise.race([last, once(worker, 'exit')]);
  assert.deepEqual(
    heard.map((message) => Object.keys(message)[0]),
    ['stall', 'ended'],
  );
  await outlivesItsLastWord(worker);
});
