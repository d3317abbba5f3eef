import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { SmtpSink } from '../test/support/smtp-sink.js';
import { freePort, listening, stopChild, type Peer } from './peer.js';
import { proxyPeers } from './proxy-peers.js';
import { chooseSender, programOnPath } from './sender.js';
import { median, printTable } from './table.js';

/** `--quick`: one round of fewer messages. `--peers NAME,…`: only these. `--sessions N`: senders at a time. */
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
  const peers: Peer[] = [];
  const upstream = await startUpstream();
  try {
    const sender = await chooseSender();
    const wanted = values.peers === '' ? Object.keys(proxyPeers) : values.peers.split(',');
    for (const name of wanted) {
      mkdirSync(join(folder, name));
      const peer = await proxyPeers[name]?.(join(folder, name), upstream.port);
      if (peer !== undefined) peers.push(peer);
    }
    const messages = values.quick ? 500 : 5000;
    const sessions = Number(values.sessions);
    const rates = new Map<string, number[]>(peers.map(({ name }) => [name, []]));
    for (let round = 0; round <= (values.quick ? 1 : 3); round += 1) {
      for (const { name, port } of peers) {
        const started = performance.now();
        await sender.send({ port, messages: round === 0 ? messages / 5 : messages, bytes, sessions, keep: true });
        const seconds = (performance.now() - started) / 1000;
        if (round > 0) rates.get(name)?.push(messages / seconds);
      }
    }
    process.stdout.write(
      `${messages} messages of ${bytes} bytes over ${sessions} sessions, sent by ${sender.name}, taken by ${upstream.name}; medians of messages a second.\n`,
    );
    const own = median(rates.get('postern') ?? []);
    printTable(
      ['server', 'messages/s', 'postern / it'],
      [...rates].map(([name, list]) => [name, median(list).toFixed(0), (own / median(list)).toFixed(2)]),
    );
  } finally {
    for (const peer of peers) await peer.stop();
    await upstream.stop();
    rmSync(folder, { recursive: true, force: true });
  }
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
