import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { atEnd, type Ending } from './ending.js';
import { Output } from './output.js';
import { projectRoot } from './project.js';

const cli = join(projectRoot, 'dist', 'core', 'postern.cjs');

/** The password of `admin` unless a test says otherwise. */
export const adminPassword = 'correct horse battery staple';

/** Listeners that take free ports, so that tests never meet each other. */
export const freeListeners = `[{ mode: "mx", port: 0 }, { mode: "submission", port: 0 }]`;

export interface CommandOptions {
  /** Where the command runs: without `--config`, its `postern.json5` counts. */
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string;
  /** A command that starts the given one in its place: under limits, as somebody else. */
  readonly launcher?: readonly string[];
  /** `postern.cjs` of another installation. */
  readonly program?: string;
  /** A command that goes on for longer is killed; 30 seconds if absent. */
  readonly limitMs?: number;
}

export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts the built `postern` with nothing of our environment but the path. */
function spawnPostern(
  args: readonly string[],
  { cwd, env = {}, launcher = [], program = cli }: CommandOptions,
): ChildProcess {
  const { PATH = '' } = process.env;
  const [first = process.execPath, ...words] = [...launcher, process.execPath, program, ...args];
  return spawn(first, words, { cwd, env: { PATH, ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
}

/** Runs a command that ends by itself. The code of one that was killed because it goes on is null. */
export async function runPostern(args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  const child = spawnPostern(args, options);
  const output = new Output(child);
  child.stdin?.end(options.input ?? '');
  const limit = setTimeout(() => child.kill('SIGKILL'), options.limitMs ?? 30_000);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(limit);
  return { code, stdout: output.stdout, stderr: output.stderr };
}

export interface ServerOptions {
  /** An existing folder; the data folder is `data` in it. */
  readonly folder: string;
  /** Text of `postern.json5`; null for none at all. Free ports are taken if absent. */
  readonly config?: string | null;
  readonly args?: readonly string[];
  /** `POSTERN_ADMIN_PASSWORD` is `adminPassword` if absent. */
  readonly env?: Readonly<Record<string, string>>;
  readonly launcher?: readonly string[];
  readonly program?: string;
}

/** A server in a process of its own, from its ready line to its end. */
export class ServerProcess {
  readonly #child: ChildProcess;
  readonly #output: Output;
  readonly exit: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  /** `http://127.0.0.1:12345` */
  readonly http: string;
  /** Port of the first SMTP listener. */
  readonly smtpPort: number;

  private constructor(child: ChildProcess, output: Output, ready: RegExpExecArray) {
    this.#child = child;
    this.#output = output;
    this.exit = exitOf(child);
    this.http = ready[1] ?? '';
    this.smtpPort = Number(ready[2]);
  }

  /** Resolves with the ready line; rejects with what the server said when it ends before. Killed when the test ends. */
  static async start(
    test: Ending,
    { folder, config, args = [], env, launcher = [], program = cli }: ServerOptions,
  ): Promise<ServerProcess> {
    const text = config === undefined ? `{ smtp: { listeners: ${freeListeners} } }` : config;
    if (text !== null) await writeFile(join(folder, 'postern.json5'), text);
    const child = spawnPostern(['start', '--http-port', '0', '--smtp-port', '0', ...args], {
      cwd: folder,
      env: env ?? { POSTERN_ADMIN_PASSWORD: adminPassword },
      launcher,
      program,
    });
    const output = new Output(child);
    const exit = exitOf(child);
    atEnd(test, async () => {
      child.kill('SIGKILL');
      await exit;
    });
    const ready = await output.find(/^postern ready http=(\S+) smtp=\S+:(\d+)$/m);
    return new ServerProcess(child, output, ready);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** What it has written so far, on both streams. */
  get output(): string {
    return `${this.#output.stdout}${this.#output.stderr}`;
  }

  /** Port of the listener of that name, as the block after the ready line tells it. */
  async portOf(listener: string): Promise<number> {
    const [, port] = await this.#output.find(new RegExp(String.raw`^\s*SMTP ${listener}\s+\S+:(\d+)$`, 'm'));
    return Number(port);
  }

  /** Waits until the output holds it. */
  find(pattern: RegExp): Promise<RegExpExecArray> {
    return this.#output.find(pattern);
  }

  async kill(
    signal: NodeJS.Signals,
  ): Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }> {
    this.#child.kill(signal);
    return this.exit;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }
}

const exitOf = async (child: ChildProcess) => {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  return { code: child.exitCode, signal: child.signalCode };
};
