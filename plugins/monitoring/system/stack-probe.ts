import { parentPort } from 'node:worker_threads';
import { MainStacks } from '../../../core/watchdog/main-stacks.js';

const SAMPLES = 5;
const EVERY_MS = 20;

void look();

/** Runs in a worker: looks at the main thread a few times, and tells what it has seen. Who hears that ends the worker. */
async function look(): Promise<void> {
  const stacks = new MainStacks();
  // A session alone does not keep a worker alive, and it must not end by itself.
  setInterval(() => undefined, 1000);
  for (let taken = 0; taken < SAMPLES; taken += 1) {
    await stacks.sample();
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  stacks.close();
  parentPort?.postMessage(stacks.stacks, []);
}
