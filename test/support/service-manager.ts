import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { join } from 'node:path';
import { atEnd, type Ending } from './ending.js';
import { Output } from './output.js';
import { projectRoot } from './project.js';
import { adminPassword } from './server-process.js';

/** Runs its arguments each time it is told to; what it has inherited it keeps, as a service manager keeps its sockets. */
const script = `while read -r word; do sh -c 'export LISTEN_PID=$$; echo "pid $$"; exec "$@"' sh "$@" </dev/null 2>&1; echo "exit $?"; done`;

export interface ManagerOptions {
  /** The data folder is `data` in it. */
  readonly folder: string;
  /** Text of `postern.json5`. */
  readonly config: string;
  /** Names of the sockets to open on free ports of 127.0.0.1. */
  readonly sockets: readonly string[];
  /** Descriptors to hand over behind them, by name. */
  readonly others?: Readonly<Record<string, number>>;
}

/** Opens sockets, and starts a server on them again and again; without a server, connections wait in the sockets. */
export class ServiceManager {
  readonly #ports: ReadonlyMap<string, number>;
  readonly #shell: ChildProcess;
  readonly #output: Output;
  #starts = 0;

  private constructor(shell: ChildProcess, ports: ReadonlyMap<string, number>) {
    this.#shell = shell;
    this.#output = new Output(shell);
    this.#ports = ports;
  }

  /** Nothing is started yet. What runs at the end of the test is killed. */
  static async open(test: Ending, options: ManagerOptions): Promise<ServiceManager> {
    const [manager] = await ServiceManager.openSeveral(test, [options]);
    if (manager === undefined) throw new Error('there is no manager');
    return manager;
  }

  /** Managers of services that are handed the same sockets: those of the first. */
  static async openSeveral(test: Ending, services: readonly ManagerOptions[]): Promise<readonly ServiceManager[]> {
    const names = services[0]?.sockets ?? [];
    const listening = await Promise.all(names.map(() => listen()));
    const managers = await Promise.all(services.map((one) => ServiceManager.#spawn(test, one, listening)));
    // From now on only the shells have them.
    for (const { server } of listening) server.close();
    return managers;
  }

  static async #spawn(
    test: Ending,
    { folder, config, sockets, others = {} }: ManagerOptions,
    listening: readonly Listening[],
  ): Promise<ServiceManager> {
    await writeFile(join(folder, 'postern.json5'), config);
    const ports = new Map(sockets.map((name, index) => [name, listening[index]?.port ?? 0]));
    const command = [process.execPath, join(projectRoot, 'dist', 'core', 'postern.cjs'), 'start', '--http-port', '0'];
    const names = [...sockets, ...Object.keys(others)];
    const { PATH = '' } = process.env;
    const shell = spawn('sh', ['-c', script, 'sh', ...command], {
      cwd: folder,
      stdio: ['pipe', 'pipe', 'pipe', ...listening.map(({ fd }) => fd), ...Object.values(others)],
      env: {
        PATH,
        POSTERN_ADMIN_PASSWORD: adminPassword,
        LISTEN_FDS: `${names.length}`,
        LISTEN_FDNAMES: names.join(':'),
      },
    });
    const manager = new ServiceManager(shell, ports);
    atEnd(test, () => manager.#end());
    return manager;
  }

  portOf(socket: string): number {
    return this.#ports.get(socket) ?? 0;
  }

  /** Resolves with the address of the pages when the server is ready. */
  async start(): Promise<string> {
    this.#starts += 1;
    this.#shell.stdin?.write('start\n');
    const ready = await this.#output.find(new RegExp(`(?:postern ready http=(\\S+)[^]*?){${this.#starts}}`));
    return ready[1] ?? '';
  }

  /** Starts, and resolves when the server has ended by itself. */
  async startAndEnd(): Promise<number> {
    this.#shell.stdin?.write('start\n');
    return Number((await this.#output.find(/^exit (\d+)$/m))[1]);
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.#pid(), signal);
  }

  /** Resolves with the exit status. */
  async stop(): Promise<number> {
    this.signal('SIGTERM');
    const ended = await this.#output.find(new RegExp(`(?:^exit (\\d+)$[^]*?){${this.#starts}}`, 'm'));
    return Number(ended[1]);
  }

  find(pattern: RegExp): Promise<RegExpExecArray> {
    return this.#output.find(pattern);
  }

  #pid(): number {
    return Number([...this.#output.stdout.matchAll(/^pid (\d+)$/gm)].at(-1)?.[1]);
  }

  async #end(): Promise<void> {
    const begun = [...this.#output.stdout.matchAll(/^pid \d+$/gm)].length;
    const ended = [...this.#output.stdout.matchAll(/^exit \d+$/gm)].length;
    if (begun > ended) this.signal('SIGKILL');
    this.#shell.stdin?.end();
    if (this.#shell.exitCode === null) await once(this.#shell, 'exit');
  }
}

interface Listening {
  readonly server: Server;
  readonly fd: number;
  readonly port: number;
}

async function listen(): Promise<Listening> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle;
  return { server, fd, port: (server.address() as AddressInfo).port };
}
