import { Flood, type FloodOrder } from './flood.js';
import { kinds } from './kinds.js';

/** Run as a process of its own, with a low priority: floods as the order says, prints that it begins, and then what it did. */
const order = JSON.parse(process.argv[2] ?? '') as FloodOrder;
const kind = kinds.find(({ name }) => name === order.kind);
if (kind === undefined) throw new Error(`there is no kind ${order.kind}`);
process.stdout.write('begins\n');
const flood = new Flood(order);
await Promise.race([kind.flood(flood), flood.end()]);
await flood.end();
process.stdout.write(`${JSON.stringify(flood.counts)}\n`, () => process.exit(0));
