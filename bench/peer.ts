import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A server under test: a process that prints `… smtp=HOST:PORT` when it is ready. */
export interface Peer {
  readonly name: string;
  readonly port: number;
  stop(): Promise<void>;
}

export async function startPeer(name: string, script: string, args: readonly string[]): Promise<Peer> {
  const child = spawn(process.execPath, [script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  const port = await readyPort(child, name);
  return {
    name,
    port,
    stop: async () => {
      if (child.exitCode !== null) return;
      child.kill('SIGTERM');
      await once(child, 'exit');
    },
  };
}

async function readyPort(child: ChildProcess, name: string): Promise<number> {
  if (child.stdout === null) throw new Error(`${name} has no output`);
  for await (const line of createInterface({ input: child.stdout })) {
    const found = /smtp=\S+:(\d+)/.exec(line);
    if (found !== null) {
      child.stdout.resume();
      return Number(found[1]);
    }
  }
  throw new Error(`${name} ended before it was ready`);
}
