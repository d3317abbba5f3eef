import { spawn } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { SmtpSink } from '../test/support/smtp-sink.js';
import { freePort, listening, stopChild } from './peer.js';
import { programOnPath } from './sender.js';

/** The server that mail is drained to: it takes everything, keeps nothing and counts. */
export interface RelaySink {
  readonly name: string;
  readonly port: number;
  /** Messages that have come so far. */
  count(): number;
  stop(): Promise<void>;
}

/** Without a message for so long, nothing more will come. */
const commitTimeoutMs = 60_000;

/** Postfix's smtp-sink where it is installed, else ours in this process. */
export async function startRelaySink(): Promise<RelaySink> {
  const program = programOnPath('smtp-sink');
  if (program === undefined) return ownSink();
  const port = await freePort();
  const user = process.getuid?.() === 0 ? ['-u', 'postfix'] : [];
  const child = spawn(program, [...user, '-c', `127.0.0.1:${port}`, '1000'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let count = 0;
  let rest = '';
  child.stdout.on('data', (chunk: Buffer) => {
    // It writes a line over itself at each message.
    const lines = `${rest}${chunk.toString('latin1')}`.split('\r');
    rest = lines.pop() ?? '';
    count = Number(/mesg=(\d+)/.exec(lines.at(-1) ?? '')?.[1] ?? count);
  });
  if (!(await listening(port, 10))) throw new Error('smtp-sink does not listen');
  return { name: 'smtp-sink', port, count: () => count, stop: () => stopChild(child) };
}

async function ownSink(): Promise<RelaySink> {
  process.stderr.write('smtp-sink is not installed (Debian: postfix); messages go to a sink of ours.\n');
  const sink = await SmtpSink.start({ after: () => undefined }, { forgetText: true });
  return {
    name: 'a sink of ours',
    port: sink.port,
    count: () => sink.messages.length,
    stop: () => sink.close(),
  };
}

/** Resolves when so many messages have come. @throws Error when nothing more comes for a minute, or it was told to stop */
export async function arrived(sink: RelaySink, expected: number, stop: AbortSignal): Promise<void> {
  let last = sink.count();
  let since = performance.now();
  while (sink.count() < expected) {
    stop.throwIfAborted();
    await pause(2);
    if (sink.count() !== last) since = performance.now();
    else if (performance.now() - since > commitTimeoutMs) throw new Error(`${expected - last} messages did not arrive`);
    last = sink.count();
  }
}
