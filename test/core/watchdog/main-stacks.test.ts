import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';

const script = `
  const { parentPort } = require('node:worker_threads');
  import(${JSON.stringify(new URL('../../../core/watchdog/main-stacks.js', import.meta.url).href)}).then(async ({ MainStacks }) => {
    const stacks = new MainStacks();
    const looks = [stacks.sample(), stacks.sample()];
    stacks.close();
    stacks.close();
    await Promise.all([...looks, stacks.sample()]);
    parentPort.postMessage('ended');
  });
`;

test('a sample of a stall that is over ends without a stack, and the thread survives', async () => {
  const worker = new Worker(script, { eval: true });
  const [message] = (await once(worker, 'message')) as [string];
  assert.equal(message, 'ended');
  await worker.terminate();
});
