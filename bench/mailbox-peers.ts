import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { MailAccount } from '../test/support/account.js';
import { Dovecot } from '../test/support/dovecot.js';
import { ImapClient } from '../test/support/imap-client.js';
import { stopChild } from './peer.js';
import type { Tree } from './mailbox-tree.js';

/** One look at a mailbox: totals, and sender, subject and date of the fifty newest. */
export type Look = () => Promise<void>;

const password = 'the password of a bench';
const authorization = `Basic ${Buffer.from(`admin:${password}`).toString('base64')}`;
const home = '/store/example.org/ann/folders';
const rows = 50;
const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Postern over a tree, in a process of its own; asked over one connection that stays open. */
export class MailboxServer {
  readonly #folder: string;
  readonly #tree: Tree;
  #child: ChildProcess | undefined;
  #port = 0;
  #agent = new Agent({ keepAlive: true, maxSockets: 1 });

  constructor(folder: string, tree: Tree) {
    this.#folder = folder;
    this.#tree = tree;
    mkdirSync(folder, { recursive: true });
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** A new process, that has shown somebody else's mailbox and has its threads. */
  async start(): Promise<void> {
    const config = join(this.#folder, 'postern.json5');
    const settings = {
      data: 'data',
      domains: ['localhost', 'example.org'],
      smtp: { listeners: [{ mode: 'mx', port: 0 }] },
      sitePlugins: [here('./loop-watch.js')],
      plugins: { store: { root: this.#tree.root } },
    };
    writeFileSync(config, JSON.stringify(settings));
    const args = [here('../core/postern.cjs'), 'start', '--config', config, '--http-port', '0'];
    const child = spawn(process.execPath, args, {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, POSTERN_ADMIN_PASSWORD: password },
    });
    this.#child = child;
    for await (const line of createInterface({ input: child.stdout })) {
      const found = /ready http=http:\/\/[^ ]*:(\d+) /.exec(line);
      if (found === null) continue;
      child.stdout.resume();
      this.#port = Number(found[1]);
      break;
    }
    this.#agent = new Agent({ keepAlive: true, maxSockets: 1 });
    for (const limit of [50, 49, 48]) await this.get(`/store/localhost/postmaster/folders/INBOX?limit=${limit}`);
  }

  async stop(): Promise<void> {
    this.#agent.destroy();
    if (this.#child !== undefined) await stopChild(this.#child);
    this.#child = undefined;
  }

  forget(): void {
    rmSync(join(this.#folder, 'data', 'cache'), { recursive: true, force: true });
  }

  readonly look: Look = async () => {
    const page = JSON.parse(await this.get(`${home}/INBOX?limit=${rows}`)) as Sheet;
    if (page.items.length !== rows || page.items[0]?.subject === '' || page.folder.total < rows) {
      throw new Error('a page is not what was asked for');
    }
  };

  /** Words of a search; how many messages have them. */
  async search(words: string): Promise<number> {
    const page = JSON.parse(await this.get(`${home}/INBOX?limit=${rows}&q=${encodeURIComponent(words)}`)) as Sheet;
    return page.searchedAll ? page.total : -1;
  }

  /** Milliseconds that the event loop was held up at most since the last question. */
  async longestBlock(): Promise<number> {
    return (JSON.parse(await this.get('/bench/loop')) as { readonly maxMs: number }).maxMs;
  }

  async get(path: string): Promise<string> {
    const sent = request({
      host: '127.0.0.1',
      port: this.#port,
      path,
      agent: this.#agent,
      headers: { authorization, accept: 'application/json' },
    });
    sent.end();
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    const chunks: Buffer[] = [];
    for await (const chunk of answer as AsyncIterable<Buffer>) chunks.push(chunk);
    if (answer.statusCode !== 200) throw new Error(`${path} was answered with ${answer.statusCode}`);
    return Buffer.concat(chunks).toString('utf8');
  }
}

interface Sheet {
  readonly items: readonly { readonly subject: string }[];
  readonly folder: { readonly total: number };
  readonly total: number;
  readonly searchedAll: boolean;
}

/** Dovecot over a tree; asked as mail clients ask. */
export class ImapServer {
  readonly #tree: Tree;
  readonly #account: MailAccount;
  #releases: (() => void | Promise<void>)[] = [];
  #port = 0;
  #client: ImapClient | undefined;

  constructor(tree: Tree, account: MailAccount) {
    this.#tree = tree;
    this.#account = account;
  }

  async start(): Promise<void> {
    const ending = { after: (release: () => void | Promise<void>) => void this.#releases.push(release) };
    const dovecot = await Dovecot.start(ending, { mailRoot: this.#tree.root, account: this.#account });
    this.#port = dovecot.port;
  }

  async stop(): Promise<void> {
    this.#client?.close();
    this.#client = undefined;
    for (const release of this.#releases.splice(0)) await release();
  }

  /** Over a connection of its own. */
  readonly look: Look = async () => {
    const client = await ImapClient.open(this.#port, 'ann@example.org');
    await lookBy(client);
    client.close();
  };

  /** A connection to each mailbox that stays open; the search asks one after the other, and counts. */
  async openAll(users: readonly string[]): Promise<(words: string) => Promise<number>> {
    const clients: ImapClient[] = [];
    for (const user of users) {
      const client = await ImapClient.open(this.#port, user);
      await client.command('SELECT INBOX');
      clients.push(client);
    }
    this.#releases.unshift(() => {
      for (const client of clients) client.close();
    });
    return async (words) => {
      let count = 0;
      for (const client of clients) {
        const lines = await client.command(
          `SEARCH ${words
            .split(' ')
            .map((word) => `SUBJECT "${word}"`)
            .join(' ')}`,
        );
        for (const { text } of lines) count += /^\* SEARCH((?: \d+)*)/.exec(text)?.[1]?.match(/\d+/g)?.length ?? 0;
      }
      return count;
    };
  }

  /** Over a connection that stays open, with the mailbox selected. */
  readonly lookAgain: Look = async () => {
    if (this.#client === undefined) {
      this.#client = await ImapClient.open(this.#port, 'ann@example.org');
      await lookBy(this.#client);
    }
    await this.#client.command('NOOP');
    await fetchNewest(this.#client, Number.NaN);
  };
}

async function lookBy(client: ImapClient): Promise<void> {
  await client.command('STATUS INBOX (MESSAGES UNSEEN)');
  const selected = await client.command('SELECT INBOX');
  const total = selected.map(({ text }) => /^\* (\d+) EXISTS/.exec(text)?.[1]).find((found) => found !== undefined);
  await fetchNewest(client, Number(total));
}

async function fetchNewest(client: ImapClient, total: number): Promise<void> {
  const range = Number.isNaN(total) ? '*' : `${total - rows + 1}:${total}`;
  const found = await client.command(`FETCH ${range} (UID FLAGS RFC822.SIZE ENVELOPE)`);
  if (!found.some(({ text }) => text.includes('ENVELOPE'))) throw new Error('there was no envelope');
}
