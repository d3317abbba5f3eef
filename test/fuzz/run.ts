/**
 * Feeds the targets at random for as long as asked:
 *   npm run fuzz -- --count N              runs of each target, 2000 if absent
 *   npm run fuzz -- --count N --seed S     the same runs as another time
 *   npm run fuzz -- --only dialogue        targets whose name has that in it
 *   npm run fuzz -- --only request --seed S --path P --count 1    one run of them
 * A failure is added to test/fixtures/fuzz-seeds.json, which `npm test` repeats.
 */
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { fuzzFixture } from './fixtures.js';
import { longestHoldMs } from './held-loop.js';
import { addSeed } from './seeds.js';
import { attempt } from './trial.js';

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '2000' },
    seed: { type: 'string' },
    only: { type: 'string', default: '' },
    path: { type: 'string' },
  },
});
const releases: (() => void | Promise<void>)[] = [];
const { targets, start } = fuzzFixture({ after: (release) => void releases.push(release) });
const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed);
const say = (line: string): void => void process.stdout.write(`${line}\n`);

await start();
try {
  say(`seed ${seed}, ${values.count} runs of each target`);
  for (const target of targets.filter(({ name }) => name.includes(values.only))) {
    const started = performance.now();
    const { runs, hold, failure } = await attempt(target, { seed, runs: Number(values.count), path: values.path });
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    say(`${target.name}: ${runs} runs in ${seconds} s, held for ${Math.round(hold.ms)} ms at most, in run ${hold.run}`);
    if (failure !== undefined) {
      say(failure.report);
      const why = failure.report.split('\n').find((line) => line.includes('Error')) ?? 'failed';
      await addSeed({ target: target.name, seed, ...(failure.path !== undefined && { path: failure.path }), why });
      process.exitCode = 1;
    } else if (hold.ms > longestHoldMs) {
      say(
        `${target.name}: the event loop was held for more than ${longestHoldMs} ms; --path ${hold.run} shows it again`,
      );
      process.exitCode = 1;
    }
  }
} finally {
  for (const release of releases.toReversed()) await release();
}
