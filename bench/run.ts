import { clusterTables } from './cluster-tables.js';
import { http } from './http.js';
import { instrumentation } from './instrumentation.js';
import { mailbox } from './mailbox.js';
import { memory } from './memory.js';
import { paint } from './paint.js';
import { proxy } from './proxy.js';
import { queue } from './queue.js';
import { receive } from './receive.js';
import { relay } from './relay.js';
import { search } from './search.js';
import { setup } from './setup-road.js';
import { soak } from './soak.js';
import { start } from './start.js';

/** `npm run bench -- NAME [options]`: each benchmark runs Postern and its peers in turn on this machine and prints ratios. */
const benchmarks: Readonly<Record<string, (args: readonly string[]) => Promise<void>>> = {
  receive,
  http,
  queue,
  proxy,
  relay,
  mailbox,
  search,
  paint,
  memory,
  start,
  setup,
  instrumentation,
  soak,
  'cluster-tables': clusterTables,
};

const [name = 'receive', ...args] = process.argv.slice(2);
const chosen = benchmarks[name];
if (chosen === undefined) {
  process.stderr.write(`No benchmark is called ${name}. There are: ${Object.keys(benchmarks).join(', ')}.\n`);
  process.exitCode = 2;
} else {
  await chosen(args);
}
