import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { SmtpSink } from '../test/support/smtp-sink.js';
import { familySeconds } from './family-time.js';
import { warmMessages } from './loads.js';
import { freePort, listening, stopChild } from './peer.js';
import { proxyPeers, type ProxyPeer } from './proxy-peers.js';
import { chooseSender, programOnPath, type Sender } from './sender.js';
import { runSenders, type SendersInput } from './senders.js';
import { median, p50AndP99, printTable } from './table.js';

/** `--quick`: one round of fewer messages, to servers that are less warm. `--peers NAME,…`: only these. `--sessions N`: senders at a time. */
const options = {
  quick: { type: 'boolean', default: false },
  peers: { type: 'string', default: '' },
  sessions: { type: 'string', default: '10' },
} as const;

const bytes = 5000;

interface Upstream {
  readonly name: string;
  readonly port: number;
  stop(): Promise<void>;
}

/** Messages a second that a server has taken from the sender and handed to another one, peers in turn. */
export async function proxy(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const peers: ProxyPeer[] = [];
  const upstream = await startUpstream();
  try {
    const sender = await chooseSender();
    const wanted = values.peers === '' ? Object.keys(proxyPeers) : values.peers.split(',');
    for (const name of wanted) {
      mkdirSync(join(folder, name));
      const peer = await proxyPeers[name]?.(join(folder, name), upstream.port);
      if (peer !== undefined) peers.push(peer);
    }
    const load = { messages: values.quick ? 2000 : 5000, bytes, sessions: Number(values.sessions), keep: true };
    const found = await measure(peers, sender, load, values.quick ? 1 : 3);
    process.stdout
      .write(`${load.messages} messages of ${bytes} bytes over ${load.sessions} sessions, sent by ${sender.name}, taken by ${upstream.name}; medians of
messages a second and of µs of processor for each. Milliseconds of the own sender for a message.\n`);
    const own = median(found.get('postern')?.rates ?? []);
    printTable(
      ['server', 'messages/s', 'postern / it', 'µs', 'p50', 'p99'],
      [...found].map(([name, { rates, micros, times }]) => {
        const rate = median(rates);
        return [name, rate.toFixed(0), (own / rate).toFixed(2), median(micros).toFixed(0), ...p50AndP99(times)];
      }),
    );
  } finally {
    for (const peer of peers) await peer.stop();
    await upstream.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Figures {
  readonly rates: number[];
  readonly micros: number[];
  times: readonly number[];
}

/** By the name of the server: a round to get warm, those that count, and one that takes times. */
async function measure(
  peers: readonly ProxyPeer[],
  sender: Sender,
  load: Omit<SendersInput, 'port'>,
  rounds: number,
): Promise<ReadonlyMap<string, Figures>> {
  const found = new Map<string, Figures>(peers.map(({ name }) => [name, { rates: [], micros: [], times: [] }]));
  const few = { ...load, messages: load.messages / 5 };
  const warming = rounds > 1 ? { ...load, messages: warmMessages } : few;
  for (let round = 0; round <= rounds; round += 1) {
    for (const { name, port, pids } of peers) {
      await sender.send({ ...(round === 0 ? warming : few), port });
      if (round === 0) continue;
      const used = familySeconds(...pids);
      const started = performance.now();
      await sender.send({ ...load, port });
      const seconds = (performance.now() - started) / 1000;
      found.get(name)?.rates.push(load.messages / seconds);
      found.get(name)?.micros.push(((familySeconds(...pids) - used) / load.messages) * 1e6);
    }
  }
  for (const { name, port } of peers) {
    const figures = found.get(name);
    if (figures !== undefined) figures.times = await runSenders({ ...few, port });
  }
  return found;
}

/** Postfix's smtp-sink where it is installed, else ours in this process. */
async function startUpstream(): Promise<Upstream> {
  const program = programOnPath('smtp-sink');
  if (program === undefined) {
    process.stderr.write('smtp-sink is not installed (Debian: postfix); messages go to a sink of ours.\n');
    const sink = await SmtpSink.start({ after: () => undefined }, { forgetText: true });
    return { name: 'a sink of ours', port: sink.port, stop: () => sink.close() };
  }
  const port = await freePort();
  const child = spawn(program, ['-u', 'nobody', `127.0.0.1:${port}`, '1000'], { stdio: 'ignore' });
  if (!(await listening(port, 10))) throw new Error('smtp-sink does not listen');
  return { name: 'smtp-sink', port, stop: () => stopChild(child) };
}
