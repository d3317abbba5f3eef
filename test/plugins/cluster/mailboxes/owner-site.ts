import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../../../core/clock.js';
import { makeCertificate } from '../../../../core/net/x509.js';
import type { Ending } from '../../../support/ending.js';
import { freePort } from '../../../support/free-port.js';
import { HttpClient } from '../../../support/http-client.js';
import { Postgres } from '../../../support/postgres.js';
import { ServerProcess } from '../../../support/server-process.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { fillTables } from '../cluster-fixture.js';

const newKey = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const pem = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }).toString();

/** An authority, and what it signs. */
export class Authority {
  readonly #key = newKey();
  readonly #name = 'authority.example';
  readonly cert = this.#sign(this.#name, this.#key, true);

  pair(name = 'localhost'): { readonly key: string; readonly cert: string } {
    const key = newKey();
    return { key: pem(key), cert: this.#sign(name, key, false) };
  }

  #sign(name: string, key: KeyObject, authority: boolean): string {
    const now = systemClock.now();
    const issuer = { name: this.#name, key: this.#key };
    return makeCertificate({ names: [name], key, from: now - 3_600_000, to: now + 3_600_000, issuer, authority });
  }
}

export interface SiteNode {
  readonly name: string;
  readonly folder: string;
  readonly peerPort: number;
  readonly server: ServerProcess;
  readonly admin: HttpClient;
}

interface Wishes {
  readonly mailboxes?: string;
  /** Further options of plugins. */
  readonly plugins?: object;
  /** Options of `http` of a node. */
  readonly http?: (node: string) => object;
}

/** Whole servers over one database, with mailboxes for example.org. */
export class OwnerSite {
  readonly nodes = new Map<string, SiteNode>();
  readonly authority = new Authority();
  readonly #test: Ending;
  readonly postgres: Postgres;
  readonly #wishes: Wishes;

  private constructor(test: Ending, postgres: Postgres, wishes: Wishes) {
    this.#test = test;
    this.postgres = postgres;
    this.#wishes = wishes;
  }

  static async start(test: Ending, names: readonly string[], wishes: Wishes = {}): Promise<OwnerSite> {
    const postgres = await Postgres.start(test, { durable: true, fill: fillTables });
    const site = new OwnerSite(test, postgres, wishes);
    for (const name of names) await site.add(name);
    return site;
  }

  node(name: string): SiteNode {
    const node = this.nodes.get(name);
    if (node === undefined) throw new Error(`no node ${name}`);
    return node;
  }

  async add(name: string): Promise<SiteNode> {
    const folder = await temporaryFolder(this.#test);
    await mkdir(join(folder, 'tls'));
    const { key, cert } = this.authority.pair();
    await writeFile(join(folder, 'tls', 'ca.pem'), this.authority.cert);
    await writeFile(join(folder, 'tls', 'node.pem'), cert);
    await writeFile(join(folder, 'tls', 'node.key'), key, { mode: 0o600 });
    return this.#start(name, folder, await freePort());
  }

  /** The node of that name again, in its folder. */
  async again(name: string): Promise<SiteNode> {
    const { folder, peerPort } = this.node(name);
    return this.#start(name, folder, peerPort);
  }

  /** Makes users at that node. */
  async users(node: string, ...names: readonly string[]): Promise<void> {
    for (const name of names)
      await this.node(node).admin.json('/users', { json: { username: `${name}@example.org` } }, 201);
  }

  sql(text: string): Promise<string> {
    return this.postgres.psql(text, 'template');
  }

  ownerOf(user: string): Promise<string> {
    return this.sql(`select node from postern.mailbox_owner where username = '${user}@example.org'`);
  }

  /** Contents of the messages that lie in the INBOX of the user on the disk of the node. */
  async inbox(node: string, user: string): Promise<readonly string[]> {
    const folder = join(this.node(node).folder, 'data', 'mail', 'example.org', user);
    const parts = ['new', 'cur'].map(async (part) => {
      const names = await readdir(join(folder, part)).catch(() => []);
      return Promise.all(names.map((name) => readFile(join(folder, part, name), 'utf8')));
    });
    return (await Promise.all(parts)).flat();
  }

  async subjects(node: string, user: string): Promise<readonly string[]> {
    return (await this.inbox(node, user)).map((text) => /^Subject: (.*)\r$/m.exec(text)?.[1] ?? '').sort();
  }

  async #start(name: string, folder: string, peerPort: number): Promise<SiteNode> {
    const config = {
      hostname: `${name}.example.org`,
      domains: ['example.org'],
      ...(this.#wishes.http !== undefined && { http: this.#wishes.http(name) }),
      smtp: { listeners: [{ mode: 'mx', port: 0 }] },
      plugins: {
        cluster: {
          node: name,
          database: { hosts: [`${this.postgres.folder}:5432`], name: 'template', user: 'postgres', tls: 'off' },
          sessionSeconds: 4,
          mailboxes: this.#wishes.mailboxes ?? 'owner',
          peers: {
            host: '127.0.0.1',
            port: peerPort,
            address: `localhost:${peerPort}`,
            tls: { ca: 'tls/ca.pem', cert: 'tls/node.pem', key: 'tls/node.key' },
          },
        },
        // Nothing is tried again by its schedule.
        'client-queue': { retry: { firstSeconds: 3600 }, housekeepingInterval: 1 },
        ...this.#wishes.plugins,
      },
    };
    const server = await ServerProcess.start(this.#test, { folder, config: JSON.stringify(config) });
    const node = { name, folder, peerPort, server, admin: HttpClient.admin(server.http) };
    this.nodes.set(name, node);
    return node;
  }
}

/** Sends a message as a stranger; the code of the reply to the dot, or of the refusal before. */
export async function sendMail(node: SiteNode, recipients: readonly string[], subject: string): Promise<number> {
  const client = await SmtpClient.greeted({ port: node.server.smtpPort, timeoutMs: 60_000 });
  try {
    const mail = await client.command('MAIL FROM:<someone@example.net>');
    if (mail.code !== 250) return mail.code;
    for (const recipient of recipients) {
      const { code } = await client.command(`RCPT TO:<${recipient}@example.org>`);
      if (code !== 250) return code;
    }
    return (await client.data(`From: someone@example.net\r\nSubject: ${subject}\r\n\r\nHello\r\n`)).code;
  } finally {
    client.close();
  }
}
