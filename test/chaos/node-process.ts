import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { atEnd, type Ending } from '../support/ending.js';
import { Output } from '../support/output.js';
import { findPeer } from '../support/peers.js';
import { Proxy } from '../support/proxy.js';
import type { Postgres } from '../support/postgres.js';

/** What a node module is given, as JSON in its first argument. */
export interface NodeArguments {
  /** URL of the database, through a proxy of this node. */
  readonly database: string;
  readonly name: string;
  /** Of the data folder: the same after a restart. */
  readonly instance: string;
  readonly sinkPort: number;
  readonly sessionMs: number;
  readonly fence: 'both' | 'none';
  /**
   * While it sends its so manieth message, the node sends the run `{ stops: id }` and stops itself by SIGSTOP: the node of
   * one table between the question at DATA and the dot, a whole server, that sends several at a time, at a question.
   */
  readonly stopBeforeDot?: number;
  /** Of a whole server: its own, and its folder. */
  readonly smtpPort?: number;
  readonly folder?: string;
}

export interface NodeOptions extends Omit<NodeArguments, 'database' | 'instance'> {
  /** Path of the module that is run. */
  readonly module: string;
}

const preload = new URL('./node-life.js', import.meta.url).href;
/** A stopped process does not see that its parent has died. */
const launcher = findPeer('setpriv') === undefined ? [] : [findPeer('setpriv') ?? '', '--pdeathsig', 'KILL', '--'];

/** A node as a process that can be killed and started again, with a network of its own to the database. */
export class NodeProcess {
  readonly proxy: Proxy;
  readonly name: string;
  /** Output of a process that ended by itself. */
  readonly faults: string[] = [];
  #options: NodeOptions;
  readonly #database: string;
  #child: ChildProcess;
  /** Where it has stopped itself: a message of the node of one table, the session of a whole server. */
  readonly stopping: Promise<string>;
  #hasStopped: (id: string) => void = () => undefined;
  #isOver = false;

  private constructor(proxy: Proxy, database: string, options: NodeOptions) {
    this.proxy = proxy;
    this.name = options.name;
    this.#options = options;
    this.#database = database;
    this.stopping = new Promise((resolve) => (this.#hasStopped = resolve));
    this.#child = this.#spawn();
  }

  static async start(test: Ending, postgres: Postgres, database: string, options: NodeOptions): Promise<NodeProcess> {
    const proxy = await Proxy.start(test, postgres.port);
    const node = new NodeProcess(proxy, postgres.url(database, proxy.port), options);
    atEnd(test, () => {
      node.#isOver = true;
      return node.kill();
    });
    return node;
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
  }

  startAgain(): void {
    if (this.#isOver || (this.#child.exitCode === null && this.#child.signalCode === null)) return;
    this.#child = this.#spawn();
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(signal);
  }

  /** Sets the wall clock of the node off by so much. */
  shiftClock(shiftMs: number): void {
    this.#child.send({ shiftMs }, () => undefined);
  }

  #spawn(): ChildProcess {
    const { module, ...options } = this.#options;
    const given: NodeArguments = {
      ...options,
      database: this.#database,
      instance: `data folder of ${this.name}`,
    };
    const command = [process.execPath, '--enable-source-maps', '--import', preload, module, JSON.stringify(given)];
    const [program = '', ...words] = [...launcher, ...command];
    const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
    const output = new Output(child);
    child.on('close', (code) => {
      // As a service manager does with a server that refuses to start without its database.
      if (code !== null && /of the cluster (does not answer|have not been read)/.test(output.stderr)) {
        setTimeout(() => this.#child === child && this.startAgain(), 500);
      } else if (code !== null) this.faults.push(`${this.name} ended with ${code}: ${output.stdout}${output.stderr}`);
    });
    child.on('message', ({ stops }: { readonly stops: string }) => {
      const { stopBeforeDot: _, ...others } = this.#options;
      this.#options = others;
      this.#hasStopped(stops);
    });
    return child;
  }
}
