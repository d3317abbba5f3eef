import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import {
  deadDomains,
  type Entrance,
  livingDomains,
  type RelayLoad,
  relayPeers,
  type RelayPeer,
} from './relay-peers.js';
import { startBadPeers } from '../test/support/bad-peers.js';
import { familySeconds } from './family-time.js';
import { warmMessages } from './loads.js';
import { arrived, type RelaySink, startRelaySink } from './relay-sink.js';
import { chooseSender } from './sender.js';
import { median, p50AndP99, printTable } from './table.js';

/** `--quick`: one round of fewer messages, to servers that are less warm. `--only TEXT`: loads whose title has it. `--peers NAME,…`: only these. `--sessions N`: senders at a time. */
const options = {
  quick: { type: 'boolean', default: false },
  only: { type: 'string', default: '' },
  peers: { type: 'string', default: '' },
  sessions: { type: 'string', default: '20' },
} as const;

const domainOf = (message: number): string => livingDomains[message % livingDomains.length] ?? '';
/** Sixty domains whose servers hang. */
const badKinds = [
  'silent',
  'silent at a step',
  'one byte a second',
  'no reply to the dot',
  'endless replies',
  'no line ends',
] as const;
const eachKind = 10;
const badDomains: string[] = [];
const badDomain = (nth: number): string => badDomains[nth % badDomains.length] ?? '';
const loads: readonly RelayLoad[] = [
  { title: '5 KB', messages: 5000, bytes: 5000 },
  {
    title: '5 KB, 20 recipients',
    messages: 2000,
    bytes: 5000,
    to: (message) => Array.from({ length: 20 }, (_, index) => `user${index}@${domainOf(message)}`),
  },
  { title: '1 MB', messages: 300, bytes: 1_000_000 },
  { title: '100 destinations', messages: 5000, bytes: 5000, to: (message) => [`user@${domainOf(message)}`] },
  {
    title: '100 destinations, 5 of them dead',
    messages: 5000,
    bytes: 5000,
    failing: deadDomains.length / livingDomains.length,
    to: (message) => [`user@${deadDomains[message % livingDomains.length] ?? domainOf(message)}`],
  },
  {
    title: 'bad peers',
    messages: 5000,
    bytes: 5000,
    hasBadPeers: true,
    failing: 1 / 5,
    to: (message) => [message % 5 === 0 ? `user@${badDomain(message / 5)}` : 'user@elsewhere.example'],
  },
];
/** What a server does behind the last message belongs to its processor time. */
const afterwardsMs = 500;

interface Round {
  /** Messages a second until the last one was accepted, and until the last one had arrived. */
  readonly accepted: number;
  readonly drained: number;
  /** µs of processor for a message. */
  readonly micros: number;
}

interface Contestant {
  readonly peer: RelayPeer;
  readonly entrance: Entrance;
  readonly rounds: Round[];
  /** Milliseconds until each message was accepted, with a sender that takes the time. */
  times: readonly number[];
}

interface Row extends Round {
  readonly load: string;
  readonly title: string;
  readonly times: readonly number[];
}

/** Messages a second that went into a queue and had all arrived at the next server, peers in turn. */
export async function relay(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  const peers: RelayPeer[] = [];
  const sink = await startRelaySink();
  const chosen = loads.filter(({ title }) => title.includes(values.only));
  const releases: (() => void | Promise<void>)[] = [];
  try {
    const kinds = chosen.some(({ hasBadPeers }) => hasBadPeers) ? badKinds : [];
    const ending = { after: (release: () => void | Promise<void>) => void releases.push(release) };
    const { port, bad: places } = await startBadPeers(ending, { kinds, each: eachKind });
    badDomains.push(...places.map(({ domain }) => domain));
    const bad = { port, places };
    const sender = await chooseSender();
    const sessions = Number(values.sessions);
    for (const name of values.peers === '' ? Object.keys(relayPeers) : values.peers.split(',')) {
      const own = join(folder, name);
      mkdirSync(own);
      const peer = await relayPeers[name]?.({ folder: own, sink: sink.port, sender, sessions, bad });
      if (peer !== undefined) peers.push(peer);
    }
    const rows: Row[] = [];
    const out = new Set<RelayPeer>();
    for (const load of chosen) {
      const contestants = peers
        .filter((peer) => !out.has(peer))
        .flatMap((peer) => peer.entrances.map((entrance): Contestant => ({ peer, entrance, rounds: [], times: [] })))
        .filter(({ entrance }) => entrance.isForOne !== true || load === loads[0]);
      const messages = values.quick ? load.messages / 5 : load.messages;
      const isFirst = rows.length === 0 && !values.quick;
      const rounds = values.quick ? 1 : 3;
      const course = { load: { ...load, messages }, rounds, isFirst, sink, stop: stop.signal };
      await compete(contestants, course, out);
      rows.push(...rowsOf(load, contestants));
    }
    process.stdout.write(
      `Over ${sessions} connections, SMTP by ${sender.name}, drained to ${sink.name}; medians. Milliseconds until a message is accepted, by the own sender.\n`,
    );
    printRows(rows);
  } finally {
    for (const peer of peers) await peer.stop().catch(() => undefined);
    for (const release of releases) await release();
    await sink.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Course {
  readonly load: RelayLoad;
  readonly rounds: number;
  /** The servers are cold, and get warm now. */
  readonly isFirst: boolean;
  readonly sink: RelaySink;
  readonly stop: AbortSignal;
}

/** One round to get warm, those that count, and one that takes times. A server that fails is out, and the others go on. */
async function compete(contestants: readonly Contestant[], course: Course, out: Set<RelayPeer>): Promise<void> {
  for (let round = 0; round <= course.rounds + 1; round += 1) {
    for (const contestant of contestants) {
      const { peer, entrance } = contestant;
      if (out.has(peer)) continue;
      const counts = round > 0 && round <= course.rounds;
      const few = Math.ceil(course.load.messages / 5);
      const uncounted = round === 0 && course.isFirst ? warmMessages : few;
      const send = async (load: RelayLoad): Promise<void> => {
        if (round <= course.rounds) await entrance.enqueue(load);
        else contestant.times = await entrance.time(load);
      };
      const run = (count: number): Promise<Round> =>
        runOne(peer, send, { ...course, load: { ...course.load, messages: count } });
      const both = counts ? run(few).then(() => run(course.load.messages)) : run(uncounted);
      const found = await both.catch((error: unknown) => {
        course.stop.throwIfAborted();
        process.stderr.write(`${entrance.title} is out from round ${round} on: ${String(error)}\n`);
        out.add(peer);
      });
      // What it still has may come at any time, and is none of the others' mail.
      if (found === undefined) await peer.stop().catch(() => undefined);
      if (found === undefined || !counts) continue;
      contestant.rounds.push(found);
      const figures = `${found.drained.toFixed(0)}/s, ${found.micros.toFixed(0)} µs`;
      process.stderr.write(`${course.load.title}, ${entrance.title}: ${figures}\n`);
    }
  }
}

async function runOne({ pids }: RelayPeer, send: Entrance['enqueue'], { load, sink, stop }: Course): Promise<Round> {
  const { messages, failing = 0 } = load;
  const expected = sink.count() + messages - Math.round(messages * failing);
  const used = familySeconds(...pids);
  const started = performance.now();
  await send(load);
  const acceptedMs = performance.now() - started;
  await arrived(sink, expected, stop);
  const drainedMs = performance.now() - started;
  await pause(afterwardsMs);
  return {
    accepted: (messages / acceptedMs) * 1000,
    drained: (messages / drainedMs) * 1000,
    micros: ((familySeconds(...pids) - used) / messages) * 1e6,
  };
}

function rowsOf({ title: load }: RelayLoad, contestants: readonly Contestant[]): readonly Row[] {
  const finished = contestants.filter(({ rounds }) => rounds.length > 0);
  return finished.map(({ entrance, rounds, times }) => ({
    load,
    title: entrance.title,
    accepted: median(rounds.map(({ accepted }) => accepted)),
    drained: median(rounds.map(({ drained }) => drained)),
    micros: median(rounds.map(({ micros }) => micros)),
    times,
  }));
}

function printRows(rows: readonly Row[]): void {
  const ratioOf = ({ load, drained }: Row): string => {
    const own = rows.find((row) => row.load === load && row.title === 'postern, SMTP');
    return own === undefined ? '' : (own.drained / drained).toFixed(2);
  };
  printTable(
    ['load', 'queue', 'accepted/s', 'drained/s', 'processor µs', 'postern, SMTP / it', 'p50', 'p99'],
    rows.map((row) => [
      row.load,
      row.title,
      ...[row.accepted, row.drained, row.micros].map((figure) => figure.toFixed(0)),
      ratioOf(row),
      ...p50AndP99(row.times),
    ]),
  );
}
