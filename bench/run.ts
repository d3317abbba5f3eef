import { cluster } from './cluster.js';
import { clusterLists } from './cluster-lists.js';
import { clusterTables } from './cluster-tables.js';
import { http } from './http.js';
import { instrumentation } from './instrumentation.js';
import { mailbox } from './mailbox.js';
import { memory } from './memory.js';
import { paint } from './paint.js';
import { processes } from './processes.js';
import { proxy } from './proxy.js';
import { queue } from './queue.js';
import { receive } from './receive.js';
import { relay } from './relay.js';
import { search } from './search.js';
import { setup } from './setup-road.js';
import { soak } from './soak.js';
import { start } from './start.js';

type Benchmark = (args: readonly string[]) => Promise<void>;

/** Each with the options of a short run; without them it is not part of one. */
const benchmarks: Readonly<Record<string, readonly [run: Benchmark, quick?: readonly string[]]>> = {
  receive: [receive, ['--quick']],
  http: [http, ['--quick']],
  queue: [queue, ['--entries', '20000']],
  proxy: [proxy, ['--quick']],
  relay: [relay, ['--quick']],
  mailbox: [mailbox, ['--sizes', '1000,10000', '--rounds', '3']],
  search: [search, ['--mailboxes', '10', '--rounds', '3']],
  paint: [paint, ['--entries', '10000', '--messages', '10000', '--rounds', '1']],
  memory: [memory, ['--steps', '1']],
  start: [start, ['--rounds', '3']],
  // It takes as long as the network.
  setup: [setup],
  instrumentation: [instrumentation, ['--quick']],
  processes: [processes, ['--rounds', '2', '--messages', '2000']],
  cluster: [cluster, ['--quick', '--only', 'smtp']],
  'cluster-tables': [clusterTables, ['--seconds', '45']],
  'cluster-lists': [clusterLists, ['--entries', '20000']],
  soak: [soak, ['--minutes', '0.5']],
};

/**
 * `npm run bench -- NAME [options]`: each benchmark runs Postern and its peers in turn on this machine and prints ratios.
 * `npm run bench -- all [--quick]` runs them one after the other.
 */
const [name = 'receive', ...args] = process.argv.slice(2);
const [chosen] = benchmarks[name] ?? [];
if (name === 'all') {
  for (const [title, [run, quick]] of Object.entries(benchmarks)) {
    const given = args.includes('--quick') ? quick : [];
    if (given === undefined) continue;
    process.stdout.write(`\n## ${title}\n\n`);
    const began = performance.now();
    // Some need a peer or a newer Node.js.
    await run(given).catch((error: unknown) => {
      process.exitCode = 1;
      process.stdout.write(`${String(error)}\n`);
    });
    process.stderr.write(`${title} took ${((performance.now() - began) / 1000).toFixed(0)} s\n`);
  }
} else if (chosen === undefined) {
  process.stderr.write(`No benchmark is called ${name}. There are: all, ${Object.keys(benchmarks).join(', ')}.\n`);
  process.exitCode = 2;
} else {
  await chosen(args);
}
