import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { atEnd, type Ending } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { sendAll, type Sent } from './mail-client.js';

interface NodesWishes {
  readonly names: readonly string[];
  /** Hosts of the database, and its name. */
  readonly hosts: readonly string[];
  readonly database: string;
  /** Takes the mail of all. */
  readonly sinkPort: number;
  readonly sessionSeconds?: number;
  /** Further options of `client-queue`, and of the server. */
  readonly queue?: object;
  readonly server?: object;
}

interface Health {
  readonly components: Readonly<Record<string, { readonly status: string; readonly why?: string }>>;
}

/** Whole servers in processes of their own, that take mail for everybody. */
export class WholeNodes {
  /** In the order of the names; another one after a start. */
  readonly ports: number[] = [];
  readonly sent: Sent = { accepted: new Map(), unanswered: new Map() };
  readonly #test: Ending;
  readonly #folder: string;
  readonly #wishes: NodesWishes;
  readonly #running = new Map<string, ServerProcess>();

  private constructor(test: Ending, folder: string, wishes: NodesWishes) {
    this.#test = test;
    this.#folder = folder;
    this.#wishes = wishes;
  }

  static async start(test: Ending, wishes: NodesWishes): Promise<WholeNodes> {
    const nodes = new WholeNodes(test, await temporaryFolder(test), wishes);
    for (const name of wishes.names) await nodes.start(name);
    return nodes;
  }

  node(name: string): ServerProcess {
    const found = this.#running.get(name);
    if (found === undefined) throw new Error(`no node ${name}`);
    return found;
  }

  folderOf(name: string): string {
    return join(this.#folder, name);
  }

  async start(name: string): Promise<void> {
    const { names, hosts, database, sinkPort, sessionSeconds = 6, queue = {}, server = {} } = this.#wishes;
    const folder = this.folderOf(name);
    await mkdir(folder, { recursive: true });
    const config = {
      hostname: `${name}.example`,
      smtp: { relayNetworks: ['127.0.0.0/8'], listeners: [{ mode: 'mx', port: 0 }] },
      ...server,
      plugins: {
        cluster: { node: name, sessionSeconds, database: { hosts, name: database, user: 'postgres', tls: 'off' } },
        'client-queue': {
          routes: { sink: { mx: ['127.0.0.1'], port: sinkPort, tls: 'never' } },
          defaultRoute: 'sink',
          retry: { firstSeconds: 1, maxSeconds: 2 },
          ...queue,
        },
      },
    };
    const running = await ServerProcess.start(this.#test, { folder, config: JSON.stringify(config) });
    this.#running.set(name, running);
    this.ports[names.indexOf(name)] = running.smtpPort;
  }

  /** A process that is killed, and the next one. */
  async replace(name: string): Promise<void> {
    await this.node(name).kill('SIGKILL');
    await this.start(name);
  }

  /** Hands so many messages to all nodes within `ms`; resolves when all of them were answered with 250. */
  async send(count: number, ms: number): Promise<void> {
    const { sent, ports } = this;
    const giveUp = new AbortController();
    const sending = sendAll(ports, { count, ms, sent, signal: giveUp.signal });
    atEnd(this.#test, () => giveUp.abort());
    await sending;
  }

  /** Recipients of accepted messages that are not among these. */
  missing(arrived: ReadonlySet<string>): readonly string[] {
    return [...this.sent.accepted.values()].flat().filter((address) => !arrived.has(address));
  }

  async handIn(name: string, to: string, text: string): Promise<number> {
    const client = await SmtpClient.greeted({ port: this.node(name).smtpPort, timeoutMs: 60_000 });
    try {
      await client.command('MAIL FROM:<a@from.example>');
      const { code } = await client.command(`RCPT TO:<${to}>`);
      return code === 250 ? (await client.data(text)).code : code;
    } finally {
      client.close();
    }
  }

  admin(name: string): HttpClient {
    return HttpClient.admin(this.node(name).http);
  }

  async health(name: string): Promise<{ readonly status: string; readonly why?: string } | undefined> {
    const { components } = (await this.admin(name).json('/health/extended')) as Health;
    return components['cluster'];
  }

  /** Outcomes on the disks of all nodes. */
  async waitingOutcomes(): Promise<number> {
    const counts = this.#wishes.names.map(async (name) => {
      const { text } = await this.admin(name).request('/metrics', { accept: 'text/plain' });
      return Number(/^postern_cluster_waiting_outcomes (\d+)$/m.exec(text)?.[1]);
    });
    return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
  }

  async log(name: string): Promise<string> {
    const logs = join(this.folderOf(name), 'data', 'logs');
    const texts = (await readdir(logs)).map((file) => readFile(join(logs, file), 'utf8'));
    return (await Promise.all(texts)).join('');
  }
}
