import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';

/** A server under test. */
export interface Peer {
  readonly name: string;
  readonly port: number;
  readonly pid: number | undefined;
  /** Folder where a file for each message appears. */
  readonly inbox: string;
  stop(): Promise<void>;
}

/** A process of ours that prints `… smtp=HOST:PORT` when it is ready. */
export async function startPeer(name: string, script: string, args: readonly string[], inbox: string): Promise<Peer> {
  const child = spawn(process.execPath, [...nodeOptions(name), script, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const port = await readyPort(child, name);
  return { name, port, pid: child.pid, inbox, stop: () => stopChild(child) };
}

/** `BENCH_PROFILE=NAME` writes a processor profile of that peer into the working folder. */
function nodeOptions(name: string): readonly string[] {
  return process.env['BENCH_PROFILE'] === name
    ? ['--cpu-prof', '--cpu-prof-name', `${name.replace(' ', '-')}.cpuprofile`]
    : [];
}

export async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
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

/** Resolves when the server has said its first word, and has heard ours that we go. */
export async function greeted(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'data');
  socket.end('QUIT\r\n');
  socket.resume();
  await once(socket, 'close');
}

/** A port that was free a moment ago, for servers that cannot choose one. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Waits until somebody listens there; false when nobody does within the time. */
export async function listening(port: number, seconds: number): Promise<boolean> {
  for (let left = seconds * 10; left > 0; left -= 1) {
    const socket = connect(port, '127.0.0.1');
    const open = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    });
    socket.destroy();
    if (open) return true;
    await pause(100);
  }
  return false;
}
