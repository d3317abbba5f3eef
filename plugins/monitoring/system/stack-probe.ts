import { parentPort } from 'node:worker_threads';
import { MainStacks } from '../../../core/watchdog/main-stacks.js';

const SAMPLES = 5;
const EVERY_MS = 20;

void look();

/** Runs in a worker: samples the main thread a few times and posts the stacks. The receiver terminates the worker. */
async function look(): Promise<void> {
  const stacks = new MainStacks();
  // Keeps the worker alive: a session alone does not, and the worker must not exit by itself.
  setInterval(() => undefined, 1000);
  for (let taken = 0; taken < SAMPLES; taken += 1) {
    await stacks.sample();
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  stacks.close();
  parentPort?.postMessage(stacks.stacks, []);
}
