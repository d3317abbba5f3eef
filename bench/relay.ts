import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type Entrance, relayPeers, type RelayPeer } from './relay-peers.js';
import { familySeconds } from './family-time.js';
import { arrived, type RelaySink, startRelaySink } from './relay-sink.js';
import { chooseSender } from './sender.js';
import { median, printTable } from './table.js';

/** `--quick`: one round of fewer messages. `--peers NAME,…`: only these. `--sessions N`: senders at a time. */
const options = {
  quick: { type: 'boolean', default: false },
  peers: { type: 'string', default: '' },
  sessions: { type: 'string', default: '20' },
} as const;

const bytes = 5000;
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
}

/** Messages a second that went into a queue and had all arrived at the next server, peers in turn. */
export async function relay(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  const peers: RelayPeer[] = [];
  const sink = await startRelaySink();
  try {
    const sender = await chooseSender();
    const sessions = Number(values.sessions);
    for (const name of values.peers === '' ? Object.keys(relayPeers) : values.peers.split(',')) {
      const own = join(folder, name);
      mkdirSync(own);
      const peer = await relayPeers[name]?.({ folder: own, sink: sink.port, sender, bytes, sessions });
      if (peer !== undefined) peers.push(peer);
    }
    const contestants = peers.flatMap((peer) =>
      peer.entrances.map((entrance): Contestant => ({ peer, entrance, rounds: [] })),
    );
    const messages = values.quick ? 1000 : 5000;
    await compete(contestants, { messages, rounds: values.quick ? 1 : 3, sink, stop: stop.signal });
    process.stdout.write(
      `${messages} messages of ${bytes} bytes over ${sessions} connections, SMTP by ${sender.name}, drained to ${sink.name}; medians.\n`,
    );
    printRounds(contestants);
  } finally {
    for (const peer of peers) await peer.stop().catch(() => undefined);
    await sink.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Course {
  readonly messages: number;
  readonly rounds: number;
  readonly sink: RelaySink;
  readonly stop: AbortSignal;
}

/** One round to get warm, then those that count. A server that fails is out, and the others go on. */
async function compete(contestants: readonly Contestant[], course: Course): Promise<void> {
  const out = new Set<RelayPeer>();
  for (let round = 0; round <= course.rounds; round += 1) {
    for (const { peer, entrance, rounds } of contestants) {
      if (out.has(peer)) continue;
      const messages = round === 0 ? Math.ceil(course.messages / 5) : course.messages;
      const found = await runOne(peer, entrance, { ...course, messages }).catch((error: unknown) => {
        course.stop.throwIfAborted();
        process.stderr.write(`${entrance.title} is out from round ${round} on: ${String(error)}\n`);
        out.add(peer);
      });
      // What it still has may come at any time, and is none of the others' mail.
      if (found === undefined) await peer.stop().catch(() => undefined);
      if (found === undefined || round === 0) continue;
      rounds.push(found);
      process.stderr.write(`${entrance.title}: ${found.drained.toFixed(0)}/s, ${found.micros.toFixed(0)} µs\n`);
    }
  }
}

async function runOne({ pid }: RelayPeer, entrance: Entrance, { messages, sink, stop }: Course): Promise<Round> {
  const expected = sink.count() + messages;
  const used = familySeconds(pid);
  const started = performance.now();
  await entrance.enqueue(messages);
  const acceptedMs = performance.now() - started;
  await arrived(sink, expected, stop);
  const drainedMs = performance.now() - started;
  await pause(afterwardsMs);
  return {
    accepted: (messages / acceptedMs) * 1000,
    drained: (messages / drainedMs) * 1000,
    micros: ((familySeconds(pid) - used) / messages) * 1e6,
  };
}

function printRounds(contestants: readonly Contestant[]): void {
  const finished = contestants.filter(({ rounds }) => rounds.length > 0);
  const rows = finished.map(({ entrance, rounds }) => ({
    title: entrance.title,
    accepted: median(rounds.map(({ accepted }) => accepted)),
    drained: median(rounds.map(({ drained }) => drained)),
    micros: median(rounds.map(({ micros }) => micros)),
  }));
  const own = rows.filter(({ title }) => title.startsWith('postern'));
  printTable(
    ['queue', 'accepted/s', 'drained/s', 'processor µs', ...own.map(({ title }) => `${title} / it`)],
    rows.map(({ title, accepted, drained, micros }) => [
      title,
      ...[accepted, drained, micros].map((figure) => figure.toFixed(0)),
      ...own.map((ours) => (ours.drained / drained).toFixed(2)),
    ]),
  );
}
