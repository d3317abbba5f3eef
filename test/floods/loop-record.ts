import { appendFileSync } from 'node:fs';
import { HeldLoop } from '../fuzz/held-loop.js';

const everyMs = 100;

/** Writes into the file named by the environment for how long the event loop of this process was held: `time milliseconds`. */
const file = process.env['FLOODS_LOOP_RECORD'];
if (file !== undefined) {
  let watch = new HeldLoop(() => 0);
  setInterval(() => {
    const { ms } = watch.stop();
    watch = new HeldLoop(() => 0);
    appendFileSync(file, `${Date.now()} ${ms}\n`);
  }, everyMs).unref();
}
