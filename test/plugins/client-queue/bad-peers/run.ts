/**
 * Plays servers that stand in the way of mail beside a good one, with the real deadlines:
 *   npm run bad-peers -- --minutes 30           all kinds together
 *   npm run bad-peers -- --minutes 2 --apart    each kind for so long
 *   npm run bad-peers -- --only dot             kinds whose name has that in it
 *   npm run bad-peers -- --each 60 --messages 20 --haste 1     domains of a kind, messages to each, divisor of deadlines
 * The good server is to get at least 0.7 of what it gets alone.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type PeerKind, peerKinds } from '../../../support/bad-peers.js';
import type { Ending } from '../../../support/ending.js';
import { undisturbedMs } from '../../../support/undisturbed-time.js';
import { type Course, openCourse, ownEnding } from './course.js';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    apart: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    each: { type: 'string', default: '60' },
    messages: { type: 'string', default: '20' },
    haste: { type: 'string', default: '1' },
  },
});
/** Messages that wait for the good server at a time. */
const backlog = 1000;
const aloneMs = 15_000;
const lineMs = 30_000;
const aim = 0.7;
const say = (line: string): void => void process.stdout.write(`${line}\n`);

/** Messages that the good server got in that time, with work for it at any time. */
async function play({ peers, feed, fixture }: Course, ms: number): Promise<number> {
  const before = peers.arrived();
  let fed = before;
  let keptAt = performance.now();
  for (const until = performance.now() + ms; performance.now() < until;) {
    if (performance.now() - keptAt > 1000) {
      keptAt = performance.now();
      await fixture.outbound.housekeep();
    }
    if (fed - peers.arrived() < backlog) {
      await feed(backlog / 5);
      fed += backlog / 5;
    } else await pause(2);
  }
  return peers.arrived() - before;
}

async function beside(t: Ending, kinds: readonly PeerKind[], ms: number): Promise<void> {
  const { ending, release } = ownEnding(t);
  const course = await openCourse(ending, { kinds, each: Number(values.each), haste: Number(values.haste) });
  await course.fixture.outbound.start();
  await play(course, aloneMs / 5);
  const beganAlone = undisturbedMs();
  const alone = ((await play(course, aloneMs)) / (undisturbedMs() - beganAlone)) * 1000;
  await course.burden(Number(values.messages));
  const title = kinds.length === peerKinds.length ? 'all kinds' : kinds.join(', ');
  const started = performance.now();
  let sum = 0;
  let tookInAll = 0;
  let processor = process.cpuUsage();
  while (performance.now() - started < ms) {
    const began = undisturbedMs();
    const got = await play(course, Math.min(lineMs, ms - (performance.now() - started)));
    const took = undisturbedMs() - began;
    sum += got;
    tookInAll += took;
    const { user, system } = process.cpuUsage(processor);
    processor = process.cpuUsage();
    const figures = [
      `${((got / took) * 1000).toFixed(0)}/s`,
      `${((got / took / alone) * 1000).toFixed(2)} of ${alone.toFixed(0)}/s alone`,
      `${course.fixture.outbound.poolFigures()['leased']} connections in use`,
      `${((user + system) / took / 10).toFixed(0)} % of a processor, threads of the peers included`,
      `${(process.memoryUsage.rss() / 1e6).toFixed(0)} MB, ${(process.memoryUsage().heapUsed / 1e6).toFixed(0)} MB of them objects of the worker`,
    ];
    say(`${title}, ${((performance.now() - started) / 60_000).toFixed(1)} min: ${figures.join('; ')}`);
  }
  const ratio = ((sum / tookInAll) * 1000) / alone;
  say(`${title}: ${ratio.toFixed(2)} of what it got alone; the aim is ${aim}`);
  if (ratio < aim) process.exitCode = 1;
  await release();
}

const releases: (() => void | Promise<void>)[] = [];
const t: Ending = { after: (release) => void releases.push(release) };
const kinds = peerKinds.filter((kind) => kind.includes(values.only));
try {
  for (const some of values.apart ? kinds.map((kind) => [kind]) : [kinds]) {
    await beside(t, some, Number(values.minutes) * 60_000);
  }
} finally {
  for (const release of releases.toReversed()) await release();
}
process.exit();
